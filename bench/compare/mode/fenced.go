package mode

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// counterIdle is the least: nobody may be left to remove the counters.
const counterIdle = 24 * time.Hour

// newStore makes the store of a mode that is fencepost's.
func newStore(name string, c Config, s *servers) (*fencepost.Store, error) {
	o := &fencepost.Options{
		Namespace: c.Namespace, TTL: c.TTL, Label: c.Label, WallClock: c.Clock, CounterIdle: counterIdle,
	}
	switch name {
	case RedisLease:
		return fencepost.New(s.pool, s.redis[0], o)
	case RedisQuorum:
		return fencepost.NewQuorum(s.pool, s.redis, o)
	case AdvisorySession:
		return fencepost.NewAdvisory(s.pool, o)
	}
	return nil, errors.New("it is not one of fencepost's")
}

// fenced holds a lease over reading and writing, and writes under the guard.
type fenced struct {
	*servers
	store *fencepost.Store

	unguarded, unwatched bool // as in Config
}

func (m *fenced) Run(ctx context.Context, op *work.Operation) error {
	lease, err := m.store.Acquire(ctx, op.Resource, nil)
	if err != nil {
		return err
	}
	// The outcome of the work is known here, and a lease that is not released ends with its TTL.
	defer func() { _ = lease.Release(ctx) }()
	seen, err := m.readAndPause(ctx, op)
	if err != nil {
		return err
	}
	return m.write(ctx, lease, op, seen)
}

func (m *fenced) write(ctx context.Context, lease *fencepost.Lease, op *work.Operation, seen *work.Seen) error {
	switch {
	case m.unwatched:
		return m.writeOnce(ctx, op, seen)
	case m.unguarded:
		return m.writeWatched(ctx, lease, op, seen)
	case op.Keyed:
		_, err := fencepost.Once(ctx, lease, op.ID, op.Rows, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			return struct{}{}, work.Write(ctx, tx, op, seen)
		})
		return err
	}
	return m.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return work.Write(ctx, tx, op, seen) }, lease)
}

// writeWatched checks the lease when Store.Tx does, before the transaction and before its COMMIT, but has no guard.
func (m *fenced) writeWatched(ctx context.Context, lease *fencepost.Lease, op *work.Operation, seen *work.Seen) error {
	if err := lease.Err(); err != nil {
		return err
	}
	return m.transaction(ctx, func(tx pgx.Tx) error {
		err := once(ctx, tx, op, func() error { return work.Write(ctx, tx, op, seen) })
		return errors.Join(lease.Err(), err)
	})
}

// inOneTransaction holds a lock that lasts as long as its transaction, and does everything in that.
type inOneTransaction struct {
	*servers
	locks *fencepost.AdvisoryTx
}

func (m *inOneTransaction) Run(ctx context.Context, op *work.Operation) error {
	return m.locks.Do(
		ctx,
		op.Resource,
		func(ctx context.Context, tx pgx.Tx) error { return readAndWrite(ctx, tx, op, work.NoLock) },
	)
}
