package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// holdRow locks row 1 in another client's transaction.
func holdRow(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	stranger, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Rollback(context.Background()) })
	fencetest.Exec(t, stranger, `SELECT FROM app.item WHERE id = 1 FOR UPDATE`)
	return stranger
}

func inBackground(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// aloneAgainstAClaim makes a write under token 1 wait for its row, and then a claim of token 2. When the claim has got
// as far as it can and the write still waits, it returns the fence's token.
func aloneAgainstAClaim(t *testing.T, pool *pgxpool.Pool, waiters int) (during int64, write error) {
	t.Helper()
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	stranger := holdRow(t, pool)
	written := inBackground(func() error {
		return fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
			return fencetest.UpdateOn(t.Context(), conn, old, fencetest.Rows, fence.Key{1}, fence.Set{"value": "old"})
		})
	})
	untilWaiters(t, pool, 1)
	claimed := inBackground(func() error { return fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", 2)) })
	if waiters > 1 {
		untilWaiters(t, pool, waiters)
	} else if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence WHERE resource = 'r'`).
		Scan(&during); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	write = <-written
	if waiters > 1 {
		if err := <-claimed; err != nil {
			t.Errorf("the claim after the write: %v", err)
		}
	}
	return during, write
}

// I3: from its guard on, the statement makes claims wait, even while it waits for its row itself.
func TestInvariant3_AStatementHoldsItsGuardToItsEnd(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	during, err := aloneAgainstAClaim(t, pool, 2)
	if err != nil || during != 1 {
		t.Errorf("the write: %v, with the fence at %d while it waited", err, during)
	}
}

// The control: without the lock on the fence the claim commits first, and the overtaken write after it.
func TestInvariant3Control_AStatementWithoutItsGuard(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	replaceFunction(t, pool, "guard(text, bigint, uuid)", "FOR SHARE;", ";")
	replaceFunction(t, pool, "guard(text, bigint, uuid)", "pg_advisory_xact_lock_shared(", "concat(")
	during, err := aloneAgainstAClaim(t, pool, 1)
	if err != nil || during != 2 || fencetest.Read(t, pool, 1).Value != "old" {
		t.Errorf("the control shows nothing: %v, fence at %d, %+v", err, during, fencetest.Read(t, pool, 1))
	}
}

// A claim in progress makes the statement wait, and once it has committed the statement is refused.
func TestAStatementWaitsForAClaim(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for name, end := range map[string]struct {
		how  func(pgx.Tx) error
		want error
	}{
		"commit":   {func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, fence.ErrStale},
		"rollback": {func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, nil},
	} {
		s := &stage{
			pool:  pool,
			old:   fencetest.MustRaise(t, pool, fencetest.ClaimOf(name, 1)),
			rival: fencetest.ClaimOf(name, 2),
		}
		claim := s.claimUncommitted(t)
		fencetest.Exec(t, pool, `UPDATE app.item SET value = 'new', last_fencing_token = 0 WHERE id = 1`)
		written := inBackground(func() error {
			return fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
				return fencetest.UpdateOn(t.Context(), conn, s.old, fencetest.Rows, fence.Key{1}, fence.Set{"value": "old"})
			})
		})
		fencetest.UntilBlockedBy(t, pool, claim)
		if err := end.how(claim); err != nil {
			t.Fatal(err)
		}
		if err := <-written; !errors.Is(err, end.want) || (err == nil) != (fencetest.Read(t, pool, 1).Value == "old") {
			t.Errorf("after %s: %v, %+v", name, err, fencetest.Read(t, pool, 1))
		}
	}
}

// If a statement by itself cannot be used, a transaction is tried instead.
func TestAStatementThatCannotStandAlone(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"serializable by default": `SET default_transaction_isolation = serializable`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := fencetest.Setup(t)
			c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
			stranger := holdRow(t, pool)
			fencetest.Exec(t, stranger, `UPDATE app.item SET value = 'between' WHERE id = 1`)
			written := inBackground(func() error {
				return fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
					fencetest.Exec(t, conn, sql)
					defer fencetest.Exec(t, conn, `RESET ALL`)
					return fencetest.UpdateOn(t.Context(), conn, c, fencetest.Rows, fence.Key{1}, fence.Set{"value": "new"})
				})
			})
			fencetest.UntilBlockedBy(t, pool, stranger)
			if err := stranger.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil || fencetest.Read(t, pool, 1).Value != "new" {
				t.Errorf("%v, %+v", err, fencetest.Read(t, pool, 1))
			}
		})
	}
}

// If a connection knows of a protection, its statement passes at once. Otherwise the second try passes, and after that
// the connection knows it.
func TestAStatementAtAProtection(t *testing.T) {
	t.Parallel()
	owner := protected(t)
	c := fencetest.MustRaise(t, owner, fencetest.ClaimOf("test:item:1", 1))
	for _, known := range []bool{true, false} {
		table := fencetest.Rows
		table.Protected = known
		pool, trips := testenv.CountedPool(t, owner)
		write := func(conn *pgx.Conn) error {
			return fencetest.UpdateOn(t.Context(), conn, c, table, fence.Key{1}, fence.Set{"value": "in"})
		}
		if err := fencetest.OnConn(t.Context(), pool, write); err != nil { // prepares as well
			t.Fatal(err)
		}
		if first := trips.Load(); !known {
			// another text to prepare
			if err := fencetest.OnConn(t.Context(), pool, write); err != nil || trips.Load() == first {
				t.Fatal(err)
			}
		}
		before := trips.Load()
		if err := fencetest.OnConn(t.Context(), pool, write); err != nil || trips.Load()-before != 1 {
			t.Errorf("known %t: %v after %d round trips", known, err, trips.Load()-before)
		}
	}
}

// A protection in mode observe logs nothing about a guarded statement, and logs any other.
func TestObserveKnowsAGuardedStatement(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	protectMode(t, owner, "observe", "app.item", "item:", "id")
	pool, log := logged(t, owner)
	c := fencetest.MustRaise(t, owner, fencetest.ClaimOf("test:item:1", 1))
	for id, guarded := range map[int]bool{1: true, 2: false} {
		err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
			return fencetest.UpdateOn(t.Context(), conn, c, fencetest.Rows, fence.Key{id}, fence.Set{"value": "in"})
		})
		if lines := log.take(); err != nil || (len(lines) == 0) != guarded {
			t.Errorf("row %d under the claim of row 1: %v, %q", id, err, lines)
		}
	}
}

// An overtaken writer's statement fails as a whole, even if its row does not exist: the effects of statement-level
// triggers are undone with it.
func TestAnOvertakenStatementLeavesNothingOfItsTriggers(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `CREATE TABLE app.audit (what text);
		CREATE FUNCTION app.audit() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO app.audit VALUES (TG_OP); RETURN NULL; END';
		CREATE TRIGGER audit AFTER UPDATE OR DELETE ON app.item FOR EACH STATEMENT EXECUTE FUNCTION app.audit()`)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	current := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2))
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 2 WHERE id = 1; DELETE FROM app.audit`)
	for name, write := range map[string]func(conn *pgx.Conn, c fence.Claim, id int) error{
		"update": func(conn *pgx.Conn, c fence.Claim, id int) error {
			return fencetest.UpdateOn(t.Context(), conn, c, fencetest.Rows, fence.Key{id}, fence.Set{"value": "x"})
		},
		"delete": func(conn *pgx.Conn, c fence.Claim, id int) error {
			return fencetest.DeleteOn(t.Context(), conn, c, fencetest.Rows, fence.Key{id})
		},
	} {
		for _, id := range []int{1, 2, 99} {
			err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error { return write(conn, old, id) })
			var audited int
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app.audit`).Scan(&audited); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(err, fence.ErrStale) || audited != 0 {
				t.Errorf("%s of row %d: %v, and %d statements audited", name, id, err, audited)
			}
		}
	}
	// The control: the triggers fire.
	if err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
		return fencetest.UpdateOn(t.Context(), conn, current, fencetest.Rows, fence.Key{1}, fence.Set{"value": "x"})
	}); err != nil {
		t.Fatal(err)
	}
	var audited int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app.audit`).Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d statements audited, %v", audited, err)
	}
}

// If a connection ended before a write's first statement was prepared, nothing was written, and the error says so.
func TestAWriteThatWasNotPreparedIsUnavailable(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	for name, write := range map[string]func(conn *pgx.Conn) error{
		"UpdateClaimed": func(conn *pgx.Conn) error {
			return fencetest.UpdateOn(t.Context(), conn, c, fencetest.Rows, fence.Key{1}, fence.Set{"value": "x"})
		},
		"DeleteClaimed": func(conn *pgx.Conn) error {
			return fencetest.DeleteOn(t.Context(), conn, c, fencetest.Rows, fence.Key{1})
		},
		"Update": func(conn *pgx.Conn) error {
			return fence.Update(t.Context(), conn, rows, 5, fence.Key{1}, fence.Set{"value": "x"})
		},
	} {
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
		if err != nil {
			t.Fatal(err)
		}
		endSession(t, pool, conn.PgConn().PID())
		err = write(conn)
		if !errors.Is(err, fence.ErrUnavailable) || errors.Is(err, fence.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close(t.Context())
	}
}

// endSession ends a session and returns when it is gone. From version 14 on PostgreSQL itself waits for that.
func endSession(t *testing.T, pool *pgxpool.Pool, pid uint32) {
	t.Helper()
	err := testenv.UntilQuery(t.Context(), pool,
		`SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE pid = $1`, int64(pid))
	if err != nil {
		t.Fatal(err)
	}
}
