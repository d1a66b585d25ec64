package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

// writes are the writes that a guarded transaction makes after its guard. Row 1 exists, row 9 does not.
var writes = map[string]string{
	"update": `UPDATE app.item SET value = 'old', last_fencing_token = 1 WHERE id = 1`,
	"insert": `INSERT INTO app.item (id, value, last_fencing_token) VALUES (9, 'old', 1)`,
	"upsert": `INSERT INTO app.item (id, value, last_fencing_token) VALUES (1, 'old', 1)
		ON CONFLICT (id) DO UPDATE SET value = 'old', last_fencing_token = 1 WHERE app.item.last_fencing_token <= 1`,
	"delete": `DELETE FROM app.item WHERE id = 1`,
}

// written reports whether the old holder's write has been committed.
const written = `SELECT NOT EXISTS (SELECT FROM app.item WHERE id = 1 AND value = '')
	OR EXISTS (SELECT FROM app.item WHERE id = 9)`

var levels = map[string]pgx.TxIsoLevel{
	"READ COMMITTED": pgx.ReadCommitted, "REPEATABLE READ": pgx.RepeatableRead, "SERIALIZABLE": pgx.Serializable,
}

// stage is one interleaving: a holder of token 1 with a transaction, and a rival that claims token 2.
type stage struct {
	pool       *pgxpool.Pool
	old, rival fence.Claim
	tx         pgx.Tx
	write      string
}

// eachInterleaving runs a script for every write and isolation level.
func eachInterleaving(t *testing.T, script func(t *testing.T, s *stage)) {
	t.Helper()
	t.Parallel()
	pool := fencetest.Setup(t)
	for level, iso := range levels {
		for write, sql := range writes {
			resource := level + "/" + write
			t.Run(resource, func(t *testing.T) {
				fencetest.Exec(t, pool, `DELETE FROM app.item`)
				fencetest.Exec(t, pool, `INSERT INTO app.item (id) VALUES (1)`)
				s := &stage{
					pool:  pool,
					old:   fencetest.MustRaise(t, pool, fencetest.ClaimOf(resource, 1)),
					rival: fencetest.ClaimOf(resource, 2),
					write: sql,
				}
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: iso})
				if err != nil {
					t.Fatal(err)
				}
				s.tx = tx
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				script(t, s)
			})
		}
	}
}

// claimInBackground starts the rival's claim.
func (s *stage) claimInBackground(t *testing.T) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fencetest.Raise(t.Context(), s.pool, s.rival) }()
	return done
}

// claimUncommitted makes the rival's claim in a transaction that stays open.
func (s *stage) claimUncommitted(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var claimed bool
	err = tx.QueryRow(t.Context(), `SELECT claimed FROM fencepost.claim($1, $2, $3)`, s.rival.Resource,
		int64(s.rival.Token), s.rival.Nonce.Hex()).
		Scan(&claimed)
	if err != nil || !claimed {
		t.Fatalf("claimed %v: %v", claimed, err)
	}
	return tx
}

func (s *stage) guard(t *testing.T) error {
	t.Helper()
	return fence.Enter(t.Context(), s.tx, s.old)
}

func (s *stage) guardInBackground(t *testing.T) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fence.Enter(t.Context(), s.tx, s.old) }()
	return done
}

func (s *stage) mustWrite(t *testing.T) {
	t.Helper()
	fencetest.Exec(t, s.tx, s.write)
}

func (s *stage) mustCommit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantRefused requires that the guard was refused, as stale or as a transaction to be run again (under an older
// snapshot), and that nothing of the transaction commits, even if the code ignores the error.
func (s *stage) wantRefused(t *testing.T, err error) {
	t.Helper()
	var server *pgconn.PgError
	again := errors.As(err, &server) && server.Code == "40001"
	if !again && !errors.Is(err, fence.ErrStale) {
		t.Fatalf("the guard of an overtaken claim: %v", err)
	}
	_, _ = s.tx.Exec(t.Context(), s.write)
	if err := s.tx.Commit(t.Context()); err == nil {
		t.Error("it committed all the same")
	}
	s.wantWritten(t, false)
}

func (s *stage) wantWritten(t *testing.T, want bool) {
	t.Helper()
	var got bool
	if err := s.pool.QueryRow(t.Context(), written).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the old holder's write is there: %v, want %v", got, want)
	}
}

func (s *stage) wantFence(t *testing.T, want token.Token) {
	t.Helper()
	var got token.Token
	if err := s.pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence WHERE resource = $1`, s.old.Resource).
		Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the fence is at %d, want %d", got, want)
	}
}

// Guard, write, claim: the claim waits until the write has committed.
func TestInterleaving_AClaimWaitsForAGuardedWrite(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		if err := s.guard(t); err != nil {
			t.Fatal(err)
		}
		claimed := s.claimInBackground(t)
		untilWaiters(t, s.pool, 1)
		s.mustWrite(t)
		s.wantFence(t, 1)
		s.mustCommit(t, s.tx)
		if err := <-claimed; err != nil {
			t.Error(err)
		}
		s.wantFence(t, 2)
		s.wantWritten(t, true)
	})
}

// Guard, write, claim, rollback: the claim is made, and nothing was written.
func TestInterleaving_AClaimWaitsForAGuardThatRollsBack(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		if err := s.guard(t); err != nil {
			t.Fatal(err)
		}
		s.mustWrite(t)
		claimed := s.claimInBackground(t)
		untilWaiters(t, s.pool, 1)
		if err := s.tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-claimed; err != nil {
			t.Error(err)
		}
		s.wantFence(t, 2)
		s.wantWritten(t, false)
	})
}

// Claim, guard, claim's commit: the guard waits, and refuses.
func TestInterleaving_AGuardWaitsForAClaimAndIsRefused(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		claim := s.claimUncommitted(t)
		guarded := s.guardInBackground(t)
		untilWaiters(t, s.pool, 1)
		s.mustCommit(t, claim)
		s.wantRefused(t, <-guarded)
		s.wantFence(t, 2)
	})
}

// Claim, guard, claim's rollback: the guard waits, and passes.
func TestInterleaving_AGuardWaitsForAClaimThatRollsBack(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		claim := s.claimUncommitted(t)
		guarded := s.guardInBackground(t)
		untilWaiters(t, s.pool, 1)
		if err := claim.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-guarded; err != nil {
			t.Fatal(err)
		}
		s.mustWrite(t)
		s.mustCommit(t, s.tx)
		s.wantFence(t, 1)
		s.wantWritten(t, true)
	})
}

// Snapshot, claim, guard: the guard does not trust what the transaction's snapshot shows of the fence.
func TestInterleaving_AGuardUnderASnapshotFromBeforeTheClaim(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		fencetest.Exec(t, s.tx, `SELECT count(*) FROM app.item`)
		fencetest.MustRaise(t, s.pool, s.rival)
		s.wantRefused(t, s.guard(t))
	})
}

// A guard inside a savepoint that is rolled back guards nothing, because its locks are released. The write that follows
// then commits after the rival's claim, which is the damage.
func TestInterleavingControl_AGuardRolledBackWithItsSavepoint(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		savepoint, err := s.tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := fence.Enter(t.Context(), savepoint, s.old); err != nil {
			t.Fatal(err)
		}
		if err := savepoint.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		fencetest.MustRaise(t, s.pool, s.rival) // nothing holds it up
		s.mustWrite(t)
		s.mustCommit(t, s.tx)
		s.wantFence(t, 2)
		s.wantWritten(t, true)
	})
}

// Savepoints after the guard may be rolled back: the guard stays in force.
func TestInterleaving_AGuardOutlivesALaterSavepoint(t *testing.T) {
	eachInterleaving(t, func(t *testing.T, s *stage) {
		t.Helper()
		if err := s.guard(t); err != nil {
			t.Fatal(err)
		}
		savepoint, err := s.tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, savepoint, s.write)
		if err := savepoint.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		claimed := s.claimInBackground(t)
		untilWaiters(t, s.pool, 1)
		s.mustWrite(t)
		s.mustCommit(t, s.tx)
		if err := <-claimed; err != nil {
			t.Error(err)
		}
		s.wantFence(t, 2)
		s.wantWritten(t, true)
	})
}
