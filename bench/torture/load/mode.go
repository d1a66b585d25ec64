package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
)

// hold is a lease or a lock that somebody has.
type hold struct {
	rows rows
	// token returns the token of the lease of one of the resources, 0 without a fence.
	token func(resource string) uint64
	// tx runs fn in one transaction under the lease.
	tx func(ctx context.Context, fn func(ctx context.Context, in rows) error) error
	// once does work that has an idempotency key, and returns its number.
	once func(ctx context.Context, key string, fn result) (int64, error)
}

// work is what a worker does under a lease, with its token, in one transaction.
type work func(ctx context.Context, token uint64, in rows) error

// result is work that returns a number.
type result func(ctx context.Context, in rows) (int64, error)

// mode is a way of coordinating work. It has hold, or do, or both. ctx bounds each call, but not its releases.
type mode struct {
	// hold acquires the leases of some resources, and runs fn.
	hold func(ctx context.Context, resources []string, fn func(ctx context.Context, h *hold) error) error
	// do does everything in one call of the library.
	do func(ctx context.Context, resource string, fn work) error
	// doOnce is do for work that has an idempotency key.
	doOnce func(ctx context.Context, resource, key string, fn result) (int64, error)
}

func open(ctx context.Context, s *servers, c *Config) (*mode, error) {
	switch c.Mode {
	case Redis, Quorum, Advisory:
		m, err := newStored(ctx, s, c)
		if err != nil {
			return nil, err
		}
		return &mode{m.hold, m.do, m.doOnce}, nil
	case InTx:
		m, err := newInTx(ctx, s, c)
		if err != nil {
			return nil, err
		}
		return &mode{do: m.do}, nil
	case Lock:
		return &mode{hold: newLocked(s, c).hold}, nil
	}
	return nil, errors.New("there is no such mode")
}

// stored holds leases of a store.
type stored struct {
	store *fencepost.Store
	table *fencepost.Table[Part]
}

func newStored(ctx context.Context, s *servers, c *Config) (*stored, error) {
	store, err := s.store(c)
	if err != nil {
		return nil, err
	}
	table, err := fencepost.NewTable[Part](ctx, store, spec())
	if err != nil {
		return nil, fmt.Errorf("declare the table: %w", err)
	}
	return &stored{store, table}, nil
}

func (m *stored) hold(ctx context.Context, resources []string, fn func(context.Context, *hold) error) error {
	leases, err := m.acquire(ctx, resources)
	if err != nil {
		return err
	}
	// The outcome of the work is known here, and a lease that is not released ends with its TTL.
	defer func() { _ = fencepost.ReleaseAll(ctx, leases...) }()
	h := &hold{rows: underLease{m.table, leases[0]}, token: func(resource string) uint64 {
		i := slices.IndexFunc(leases, func(l *fencepost.Lease) bool { return l.Resource() == resource })
		return uint64(leases[i].Token())
	}}
	h.tx = func(ctx context.Context, fn func(context.Context, rows) error) error {
		return m.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, m.table.In(tx)) }, leases...)
	}
	h.once = func(ctx context.Context, key string, fn result) (int64, error) {
		r, err := fencepost.Once(ctx, leases[0], key, nil, m.counted(fn))
		return r.Value, err
	}
	return fn(ctx, h)
}

func (m *stored) acquire(ctx context.Context, resources []string) ([]*fencepost.Lease, error) {
	if len(resources) > 1 {
		return m.store.AcquireAll(ctx, resources, nil)
	}
	l, err := m.store.Acquire(ctx, resources[0], nil)
	return []*fencepost.Lease{l}, err
}

func (m *stored) counted(fn result) fencepost.OnceFunc[int64] {
	return func(ctx context.Context, tx pgx.Tx) (int64, error) { return fn(ctx, m.table.In(tx)) }
}

func (m *stored) do(ctx context.Context, resource string, fn work) error {
	return m.store.Do(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
		l, _ := fencepost.FromContext(ctx)
		return fn(ctx, uint64(l.Token()), m.table.In(tx))
	})
}

func (m *stored) doOnce(ctx context.Context, resource, key string, fn result) (int64, error) {
	r, err := fencepost.DoOnce(ctx, m.store, resource, key, nil, m.counted(fn))
	return r.Value, err
}

// inTx holds a lock that is its transaction.
type inTx struct {
	locks *fencepost.AdvisoryTx
	table *fencepost.AdvisoryTable[Part]
}

func newInTx(ctx context.Context, s *servers, c *Config) (*inTx, error) {
	locks, err := fencepost.NewAdvisoryTx(s.pool, &fencepost.AdvisoryTxOptions{MaxIdle: 2 * c.TTL, Label: s.label})
	if err != nil {
		return nil, fmt.Errorf("make the locks: %w", err)
	}
	table, err := fencepost.NewAdvisoryTable[Part](ctx, locks, spec())
	if err != nil {
		return nil, fmt.Errorf("declare the table: %w", err)
	}
	return &inTx{locks, table}, nil
}

func (m *inTx) do(ctx context.Context, resource string, fn work) error {
	return m.locks.Do(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
		c, _ := fencepost.ClaimFromContext(ctx)
		return fn(ctx, uint64(c.Token), m.table.In(tx))
	})
}

// locked holds a Redis lock, and writes as if that excluded others.
type locked struct {
	client *redislock.Client
	pool   *pgxpool.Pool
	ttl    time.Duration
}

// lockPoll is the pause between two tries of a waiter.
const lockPoll = 10 * time.Millisecond

func newLocked(s *servers, c *Config) *locked {
	return &locked{redislock.New(s.redis[0].(*redis.Client)), s.pool, c.TTL}
}

func (m *locked) hold(ctx context.Context, resources []string, fn func(context.Context, *hold) error) error {
	for _, resource := range resources {
		l, err := m.client.Obtain(ctx, "lock:"+resource, m.ttl, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(lockPoll),
		})
		if err != nil {
			return fmt.Errorf("take the lock: %w", err)
		}
		// As above.
		defer func() { _ = l.Release(context.WithoutCancel(ctx)) }()
	}
	return fn(ctx, &hold{rows: plain{m.pool}, token: func(string) uint64 { return 0 }, tx: m.tx, once: m.once})
}

func (m *locked) tx(ctx context.Context, fn func(context.Context, rows) error) error {
	tx, err := m.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // does nothing after COMMIT
	if err := fn(ctx, plain{tx}); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return errors.Join(fencepost.ErrOutcomeUnknown, err)
	}
	return nil
}

// once looks whether the work has been done, and does it.
func (m *locked) once(ctx context.Context, key string, fn result) (n int64, err error) {
	err = m.pool.QueryRow(ctx, `SELECT n FROM torture.done WHERE key = $1`, key).Scan(&n)
	if !errors.Is(err, pgx.ErrNoRows) {
		return n, err
	}
	err = m.tx(ctx, func(ctx context.Context, in rows) error {
		if n, err = fn(ctx, in); err != nil {
			return err
		}
		_, err := in.(plain).db.Exec(ctx, `INSERT INTO torture.done VALUES ($1, $2)`, key, n)
		return err
	})
	return n, err
}
