package fencepost

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/lease"
)

// TxOptions are the settings of one guarded transaction. The zero value, and a nil pointer, mean the defaults;
// those are written out in each BEGIN, so that the database's own defaults do not matter.
type TxOptions struct {
	// Isolation is pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable. Under the latter two a writer that
	// waits for another gets 40001 where READ COMMITTED would look again, and the transaction runs again.
	// Default pgx.ReadCommitted.
	Isolation pgx.TxIsoLevel
	// ReadOnly lets the function read and write nothing: PostgreSQL refuses writes with SQLSTATE 25006
	// once the guard, which has to lock the fence, stands. Default false.
	ReadOnly bool
	// MaxIdle overrides the store's MaxIdle. From 1 ms to 24 h. Default: the store's.
	MaxIdle time.Duration

	// first is what else travels with BEGIN and the guards, after them.
	first func(*pgx.Batch)
}

// txOptions resolves a transaction's settings against the store's.
func (s *Store) txOptions(opts *TxOptions) (TxOptions, error) {
	var o TxOptions
	if opts != nil {
		o = *opts
	}
	if o.Isolation == "" {
		o.Isolation = pgx.ReadCommitted
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = s.opts.MaxIdle
	}
	switch o.Isolation {
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return o, invalidf("isolation %q is none of read committed, repeatable read and serializable", string(o.Isolation))
	}
	return o, checkMaxIdle(o.MaxIdle)
}

func checkMaxIdle(d time.Duration) error {
	if d < time.Millisecond || d > lease.MaxTTL {
		return invalidf("MaxIdle %v is outside 1ms to %v", d, lease.MaxTTL)
	}
	return nil
}
