package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// ownServer gives a server that no other test uses, with fencepost's migrations and the table rows in its first
// database.
func ownServer(t *testing.T, args ...string) *pgxpool.Pool {
	t.Helper()
	url := testenv.OwnPostgres(t, args...).URL()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	pool := testenv.PoolOn(t, url)
	fencetest.Exec(t, pool, fencetest.CreateRows)
	return pool
}

// hearing opens a connection, with Notices wired in or without.
func hearing(t *testing.T, pool *pgxpool.Pool, wired bool) *pgx.Conn {
	t.Helper()
	config := pool.Config().ConnConfig.Copy()
	if wired {
		fence.Notices(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// withoutItsStandby runs a call whose commit waits for a standby that does not exist, and ends the wait by a function
// of the server.
func withoutItsStandby(t *testing.T, pool *pgxpool.Pool, conn *pgx.Conn, end string, call func() error) error {
	t.Helper()
	waited, err := endingTheWait(t, pool, conn, end, call)
	if !waited {
		t.Error("the commit did not wait for its standby")
	}
	return err
}

// waitForNobody makes commits wait for a standby that does not exist.
func waitForNobody(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	fencetest.Exec(t, pool, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
	fencetest.Exec(t, pool, `SELECT pg_reload_conf()`)
	conn := hearing(t, pool, false)
	for waited := false; !waited; { // until the server's processes have heard of it
		waited, _ = endingTheWait(t, pool, conn, "pg_cancel_backend", func() error {
			_, err := conn.Exec(t.Context(), `UPDATE app.item SET value = value WHERE id = 3`)
			return err
		})
	}
}

func endingTheWait(
	t *testing.T, pool *pgxpool.Pool, conn *pgx.Conn, end string, call func() error,
) (waited bool, err error) {
	t.Helper()
	pid := conn.PgConn().PID()
	done := make(chan error, 1)
	go func() { done <- call() }()
	for {
		select {
		case err := <-done:
			return waited, err
		default:
		}
		err := pool.QueryRow(t.Context(), `SELECT $2 OR coalesce(bool_or(`+end+`(pid)), false)
			FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = $1::int`, pid, waited).Scan(&waited)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Notices reports the two warnings that make durability doubtful, for a claim and for any other commit.
func TestCase43_ACommitThatDidNotWaitForItsStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	pool := ownServer(t)
	waitForNobody(t, pool)
	for end, err := range map[string]error{"pg_cancel_backend": nil, "pg_terminate_backend": fence.ErrOutcomeUnknown} {
		for _, wired := range []bool{true, false} {
			conn, c := hearing(t, pool, wired), fencetest.ClaimOf("r "+end, 1)
			if wired {
				c.Resource += " heard"
			}
			want := err // a session that was ended has lost the reply, heard or not
			if wired {
				want = fence.ErrOutcomeUnknown
			}
			raise := func() error { return fence.Raise(t.Context(), conn, c, nil) }
			if got := withoutItsStandby(t, pool, conn, end, raise); !errors.Is(got, want) || want == nil && got != nil {
				t.Errorf("%s, wired %v: %v", end, wired, got)
			}
			if conn.IsClosed() {
				continue
			}
			// If the claim is repeated, it is recognised as made, and still waits for the same standby.
			if got := withoutItsStandby(t, pool, conn, end, raise); !errors.Is(got, want) || want == nil && got != nil {
				t.Errorf("%s, wired %v, again: %v", end, wired, got)
			}
			_, got := conn.Exec(t.Context(), `SELECT 1`)
			if got != nil {
				t.Errorf("the connection is of no use afterwards: %v", got)
			}
		}
	}
}

// All other warnings are harmless: those of a trigger, also at COMMIT, and of auto_explain, which many servers load.
func TestCase43_OtherWarningsStopNobody(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'canceling wait';
			RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER warn AFTER INSERT OR UPDATE ON fencepost.fence DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION public.warn();
		CREATE TRIGGER warn_now AFTER INSERT OR UPDATE ON fencepost.fence EXECUTE FUNCTION public.warn()`)
	config := pool.Config().ConnConfig.Copy()
	heard := 0
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { heard++ }
	fence.Notices(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	fencetest.Exec(
		t,
		conn,
		`LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = 'warning'`,
	)
	if err := fence.Raise(t.Context(), conn, fencetest.ClaimOf("r", 1), nil); err != nil {
		t.Error(err)
	}
	if _, err := fence.Draw(t.Context(), conn, "r", fencetest.ClaimOf("r", 1).Nonce, nil); err != nil {
		t.Error(err)
	}
	if heard < 6 {
		t.Errorf("the test shows nothing: %d warnings", heard)
	}
}
