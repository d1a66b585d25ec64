package fence_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
)

// markOf begins a transaction and marks it.
func markOf(t *testing.T, conn *pgx.Conn) (pgx.Tx, fence.Mark) {
	t.Helper()
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	mark := fence.QueueMark(&b)
	results := conn.SendBatch(t.Context(), &b)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		t.Fatal(err)
	}
	return tx, *mark
}

// withOne hands out a connection of the pool.
func withOne(t *testing.T, pool *pgxpool.Pool, fn func(conn *pgx.Conn)) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fn(conn.Conn())
}

// alive is setup with a life.
func alive(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := setup(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		if err := fence.BeginLife(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	})
	return pool
}

// settleSoon settles with little patience.
func settleSoon(t *testing.T, pool *pgxpool.Pool, m fence.Mark) (committed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return fence.Settle(ctx, pool, m)
}

func TestSettleTellsCommittedRolledBackAndInProgress(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		_, err := settleSoon(t, pool, mark)
		wantErr(t, err, fence.ErrOutcomeUnknown, context.DeadlineExceeded) // in progress
		if err := fence.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		if committed, err := fence.Settle(t.Context(), pool, mark); err != nil || !committed {
			t.Errorf("committed: %v, %v", committed, err)
		}
		tx, mark = markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if committed, err := fence.Settle(t.Context(), pool, mark); err != nil || committed {
			t.Errorf("rolled back: %v, %v", committed, err)
		}
	})
}

// What cannot be known is unknown at once: no mark, another life, an id from the future, one long forgotten.
func TestSettleNeverGuesses(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, m := range map[string]fence.Mark{
			"no mark": {}, "no life": {XID: mark.XID}, "no id": {Life: mark.Life},
			"another life": {XID: mark.XID, Life: "00000000-0000-0000-0000-000000000001"},
			"future":       {XID: "9000000000000000000", Life: mark.Life},
			"not an id":    {XID: "x", Life: mark.Life},
		} {
			committed, err := fence.Settle(t.Context(), pool, m)
			if wantErr(t, err, fence.ErrOutcomeUnknown); committed || errors.Is(err, fence.ErrUnavailable) {
				t.Errorf("%s: %v, %v", name, committed, err)
			}
		}
	})
}

// A life that a dump brought along is none: its ids are those of another server.
func TestALifeOutOfADumpIsNone(t *testing.T) {
	t.Parallel()
	pool := alive(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `CREATE TEMPORARY TABLE dump AS SELECT * FROM fencepost.life`)
		exec(t, conn, `DELETE FROM fencepost.life`)
		exec(t, conn, `INSERT INTO fencepost.life SELECT * FROM dump`)
		_, err := fence.Settle(t.Context(), pool, mark)
		wantErr(t, err, fence.ErrOutcomeUnknown)
		tx, without := markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := fence.BeginLife(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		tx, next := markOf(t, conn)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if without.Life != "" || next.Life == "" || next.Life == mark.Life {
			t.Errorf("lives %q, %q, %q", mark.Life, without.Life, next.Life)
		}
		if committed, err := fence.Settle(t.Context(), pool, next); err != nil || !committed {
			t.Errorf("in the next life: %v, %v", committed, err)
		}
	})
}

// Many begin a life at once: there is one, and nothing but the database's own work changes it.
func TestOneLifeForAll(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	lives := map[string]int{}
	for range 8 {
		wg.Go(func() {
			withOne(t, pool, func(conn *pgx.Conn) {
				if err := fence.BeginLife(t.Context(), conn); err != nil {
					t.Error(err)
				}
				tx, mark := markOf(t, conn)
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				lives[mark.Life]++
			})
		})
	}
	wg.Wait()
	exec(t, pool, `VACUUM (FREEZE) fencepost.life`)
	exec(t, pool, `VACUUM (FULL) fencepost.life`)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, mark := markOf(t, conn)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		lives[mark.Life]++
		if err := fence.BeginLife(t.Context(), conn); err != nil {
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

func TestBeginLifeNeedsAnIdleConnection(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	withOne(t, pool, func(conn *pgx.Conn) {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, fence.BeginLife(t.Context(), conn), fence.ErrInvalid)
		_, err = fence.PurgeOnce(t.Context(), conn, "n", fence.OnceWindow)
		wantErr(t, err, fence.ErrInvalid)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
