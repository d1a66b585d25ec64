package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
)

// commit marks transactions, ends them in each way, and asks for their outcomes.
func (s *scratch) commit(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	if _, err := a.Exec(ctx, s.sql(`SELECT fencepost.begin_incarnation()`)); err != nil {
		return err
	}
	for _, end := range []struct {
		status string
		by     func(pgx.Tx, pgcommit.Mark) error
	}{
		{"in progress", func(pgx.Tx, pgcommit.Mark) error { return nil }},
		{"aborted", func(tx pgx.Tx, _ pgcommit.Mark) error { return tx.Rollback(ctx) }},
		{"committed", func(tx pgx.Tx, m pgcommit.Mark) error { return pgcommit.CommitMarked(ctx, tx, m) }},
	} {
		tx, err := inTx(ctx, a)
		if err != nil {
			return err
		}
		var m pgcommit.Mark
		if err := tx.QueryRow(ctx, s.sql(`SELECT xid, coalesce(incarnation::text, '') FROM fencepost.mark()`)).
			Scan(&m.XID, &m.Incarnation); err != nil {
			return err
		}
		if err := end.by(tx, m); err != nil {
			return fmt.Errorf("to be %s: %w", end.status, err)
		}
		var status string
		if err := b.QueryRow(ctx, s.sql(`SELECT fencepost.settle($1::text, $2::uuid)`), m.XID, m.Incarnation).
			Scan(&status); err != nil {
			return err
		}
		if status != end.status {
			return fmt.Errorf("a transaction that is %s is said to be %s", end.status, status)
		}
		if end.status == "in progress" {
			if err := tx.Rollback(ctx); err != nil {
				return err
			}
		}
	}
	return s.broken(ctx, a)
}

// broken commits a transaction under the mark of another one.
func (s *scratch) broken(ctx context.Context, conn *pgx.Conn) error {
	tx, err := inTx(ctx, conn, `INSERT INTO `+s.table().String()+` (id, value) VALUES ('broken', 'first')`)
	if err != nil {
		return err
	}
	if err := pgcommit.CommitMarked(ctx, tx, pgcommit.Mark{XID: "1"}); !errors.Is(err, pgcommit.ErrBroken) {
		return fmt.Errorf("COMMIT under another transaction's id: %w", orNil(err))
	}
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		return err
	}
	return s.wantValue(ctx, conn, "broken", "no row")
}

// once lets two transactions begin the work of one key.
func (s *scratch) once(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	begin := func(ctx context.Context, db pgxQuerier) (result *string, err error) {
		err = db.QueryRow(ctx, s.sql(`SELECT fencepost.once_begin('n', 'key', 'n:once', $1)`), bytes.Repeat([]byte{7}, 32)).
			Scan(&result)
		return result, err
	}
	tx, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	switch result, err := begin(ctx, tx); {
	case err != nil:
		return err
	case result != nil:
		return errors.New("the work of a new key is said to be done")
	}
	var seen *string
	again := t.start(ctx, func(ctx context.Context) (err error) {
		seen, err = begin(ctx, b)
		return err
	})
	if err := again.waits(s.watch, "the transaction that has entered the key"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(`SELECT fencepost.once_end('n', 'key', '{"done": true}')`)); err != nil {
		return err
	}
	if err := errors.Join(tx.Commit(ctx), again.ends(ctx)); err != nil {
		return err
	}
	if seen == nil || *seen != `{"done": true}` {
		return errors.New("the second call did not get the first one's result")
	}
	_, err = a.Exec(ctx, s.sql(`SELECT fencepost.once_purge('n', interval '24 hours', 10)`))
	return err
}

// session lets two lockers, as if of two processes, compete for a lock.
func (s *scratch) session(ctx context.Context, _ *trial) error {
	pools := make([]*pgxpool.Pool, 2)
	lockers := make([]*advisory.Locker, 2)
	for i := range pools {
		pool, err := s.pool(ctx)
		if err != nil {
			return err
		}
		defer pool.Close()
		pools[i] = pool
		// The waiter is notified of the release, and does not find out by polling.
		if lockers[i], err = advisory.NewLocker(
			pool,
			&advisory.Options{Namespace: s.schema, LookEvery: time.Hour, Linger: time.Millisecond},
		); err != nil {
			return err
		}
	}
	held, err := lockers[0].TryAcquire(ctx, "session", nil)
	switch {
	case errors.Is(err, advisory.ErrInvalid):
		return untriedf("%v", err)
	case err != nil:
		return err
	}
	defer func() { _ = held.Release(context.WithoutCancel(ctx)) }()
	return s.handOver(ctx, lockers[1], held)
}

// handOver lets another locker wait for a lease that is then released.
func (s *scratch) handOver(ctx context.Context, other *advisory.Locker, held *advisory.Lease) error {
	if got, err := other.TryAcquire(ctx, "session", nil); !errors.Is(err, advisory.ErrHeld) {
		if err == nil {
			_ = got.Release(ctx)
		}
		return fmt.Errorf("a lock that is held was not refused to another: %w", orNil(err))
	}
	t := newTrial(s.config)
	defer t.end()
	waiting := t.start(ctx, func(ctx context.Context) error {
		got, err := other.Acquire(ctx, "session", nil)
		if err == nil {
			err = got.Release(ctx)
		}
		return err
	})
	if err := waiting.waits(s.watch, "the lock that is held"); err != nil {
		return err
	}
	if err := held.Release(ctx); err != nil {
		return err
	}
	if err := waiting.ends(ctx); err != nil {
		return fmt.Errorf("the waiter was not notified of the release: %w", err)
	}
	return nil
}

// pool makes a pool of the same settings.
func (s *scratch) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.config.ConnString())
	if err != nil {
		return nil, errors.New("the address does not parse") // the cause quotes it
	}
	config.ConnConfig = s.config.Copy()
	config.MaxConns = 2
	return pgxpool.NewWithConfig(ctx, config)
}
