package fencepost

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/lease"
)

// TxOptions are the settings of one guarded transaction. The zero value, and a nil pointer, mean the defaults. Each
// BEGIN states them, so the database's own defaults do not matter, with one exception: an operator can set
// default_transaction_read_only = on to stop all writes of a database, a role or a session. Then nothing is written,
// and every guarded transaction returns ErrUnavailable.
type TxOptions struct {
	// Isolation is pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable. Under the latter two, a writer that had
	// to wait for another writer gets 40001, and the transaction runs again; READ COMMITTED would read the row again
	// instead. Default pgx.ReadCommitted.
	Isolation pgx.TxIsoLevel
	// ReadOnly lets the function read, but not write. PostgreSQL refuses writes with SQLSTATE 25006 once the guard,
	// which must lock the fence, has been entered. Default false.
	ReadOnly bool
	// MaxIdle overrides the store's MaxIdle. From 1 ms to 24 h. Default: the store's.
	MaxIdle time.Duration

	// first queues further statements, which are sent with BEGIN and the guards, after them.
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
		return o, invalidf("isolation %q is not read committed, repeatable read or serializable", string(o.Isolation))
	}
	return o, checkMaxIdle(o.MaxIdle)
}

func checkMaxIdle(d time.Duration) error {
	if d < time.Millisecond || d > lease.MaxTTL {
		return invalidf("MaxIdle %v is outside 1ms to %v", d, lease.MaxTTL)
	}
	return nil
}
