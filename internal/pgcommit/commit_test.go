package pgcommit_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
)

// markOf begins a transaction and marks it.
func markOf(t *testing.T, conn *pgx.Conn) (pgx.Tx, pgcommit.Mark) {
	t.Helper()
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	mark := &pgcommit.Mark{}
	pgcommit.QueueMark(&b, mark)
	results := conn.SendBatch(t.Context(), &b)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		t.Fatal(err)
	}
	return tx, *mark
}

// withOne passes a connection of the pool.
func withOne(t *testing.T, pool *pgxpool.Pool, fn func(conn *pgx.Conn)) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fn(conn.Conn())
}

// alive is setup with an incarnation.
func alive(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := fencetest.Setup(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		if err := pgcommit.BeginIncarnation(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	})
	return pool
}

// settleSoon settles with little patience.
func settleSoon(t *testing.T, pool *pgxpool.Pool, m pgcommit.Mark) (committed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return pgcommit.Settle(ctx, pool, m)
}

func TestSettleTellsCommittedRolledBackAndInProgress(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		_, err := settleSoon(t, pool, mark)
		fencetest.WantErr(t, err, pgerr.ErrOutcomeUnknown, context.DeadlineExceeded) // in progress
		if err := pgcommit.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		if committed, err := pgcommit.Settle(t.Context(), pool, mark); err != nil || !committed {
			t.Errorf("committed: %v, %v", committed, err)
		}
		tx, mark = markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if committed, err := pgcommit.Settle(t.Context(), pool, mark); err != nil || committed {
			t.Errorf("rolled back: %v, %v", committed, err)
		}
	})
}

// An outcome that cannot be known is unknown at once: no mark, another incarnation, an id from the future, one long
// forgotten.
func TestSettleNeverGuesses(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, m := range map[string]pgcommit.Mark{
			"no mark": {}, "no incarnation": {XID: mark.XID}, "no id": {Incarnation: mark.Incarnation},
			"another incarnation": {XID: mark.XID, Incarnation: "00000000-0000-0000-0000-000000000001"},
			"future":              {XID: "9000000000000000000", Incarnation: mark.Incarnation},
			"not an id":           {XID: "x", Incarnation: mark.Incarnation},
		} {
			committed, err := pgcommit.Settle(t.Context(), pool, m)
			if fencetest.WantErr(t, err, pgerr.ErrOutcomeUnknown); committed || errors.Is(err, pgerr.ErrUnavailable) {
				t.Errorf("%s: %v, %v", name, committed, err)
			}
		}
	})
}

// An incarnation from a dump does not count: its ids are those of another server.
func TestAnIncarnationOutOfADumpIsNone(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, conn, `CREATE TEMPORARY TABLE dump AS SELECT * FROM fencepost.incarnation`)
		fencetest.Exec(t, conn, `DELETE FROM fencepost.incarnation`)
		fencetest.Exec(t, conn, `INSERT INTO fencepost.incarnation SELECT * FROM dump`)
		_, err := pgcommit.Settle(t.Context(), pool, mark)
		fencetest.WantErr(t, err, pgerr.ErrOutcomeUnknown)
		tx, without := markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pgcommit.BeginIncarnation(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		tx, next := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if without.Incarnation != "" || next.Incarnation == "" || next.Incarnation == mark.Incarnation {
			t.Errorf("lives %q, %q, %q", mark.Incarnation, without.Incarnation, next.Incarnation)
		}
		if committed, err := pgcommit.Settle(t.Context(), pool, next); err != nil || !committed {
			t.Errorf("in the next incarnation: %v, %v", committed, err)
		}
	})
}

// Many callers begin an incarnation at once: there is one, and only the database's own work changes it.
func TestOneIncarnationForAll(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	lives := map[string]int{}
	for range 8 {
		wg.Go(func() {
			withOne(t, pool, func(conn *pgx.Conn) {
				if err := pgcommit.BeginIncarnation(t.Context(), conn); err != nil {
					t.Error(err)
				}
				tx, mark := markOf(t, conn)
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				lives[mark.Incarnation]++
			})
		})
	}
	wg.Wait()
	fencetest.Exec(t, pool, `VACUUM (FREEZE) fencepost.incarnation`)
	fencetest.Exec(t, pool, `VACUUM (FULL) fencepost.incarnation`)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		lives[mark.Incarnation]++
		if err := pgcommit.BeginIncarnation(t.Context(), conn); err != nil {
			t.Error(err)
		}
		if xid, err := strconv.ParseUint(mark.XID, 10, 64); err != nil || xid == 0 {
			t.Errorf("id %q", mark.XID)
		}
	})
	if len(lives) != 1 || lives[""] != 0 {
		t.Errorf("lives %v", lives)
	}
}

func TestBeginIncarnationNeedsAnIdleConnection(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fencetest.WantErr(t, pgcommit.BeginIncarnation(t.Context(), conn), pgerr.ErrInvalid)
		_, err = pgledger.Purge(t.Context(), conn, "n", pgledger.Window)
		fencetest.WantErr(t, err, pgerr.ErrInvalid)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
