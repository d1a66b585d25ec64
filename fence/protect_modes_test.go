package fence_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// serverLog collects what the server logs about one client's sessions, because those sessions ask for the log messages.
type serverLog struct {
	mu    sync.Mutex
	lines []string
}

// logged returns a pool whose sessions send what they log.
func logged(t *testing.T, of *pgxpool.Pool) (*pgxpool.Pool, *serverLog) {
	t.Helper()
	var log serverLog
	config := of.Config()
	config.ConnConfig.RuntimeParams["client_min_messages"] = "log"
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "LOG" {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.lines = append(log.lines, n.Message)
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, &log
}

// take returns the lines since the last call.
func (l *serverLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func wantLine(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	for _, line := range lines {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(line, part)
		}
		if !missing {
			return
		}
	}
	t.Errorf("no line has %q: %q", parts, lines)
}

// A rolling deployment: in mode observe the old program goes on, and the log shows the writes that would be refused.
func TestCase19_ObserveLetsPassAndLogs(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	fencetest.Exec(t, owner, `UPDATE app.item SET last_fencing_token = 5`)
	protectMode(t, owner, "observe", "app.item", "item:", "id")
	pool, log := logged(t, owner)
	for _, name := range []string{"UPDATE", "INSERT", "DELETE", "TRUNCATE"} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := content(t, tx)
		if err := unaware[name](t.Context(), tx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if content(t, tx) == before {
			t.Errorf("%s changed nothing", name)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLine(t, log.take(), "fencepost observe: "+name+" on app.item", "session user postgres", "ZF004")
	}
	// Stale claims and rows ahead are seen as well.
	old := fencetest.MustRaise(t, owner, fencetest.ClaimOf("test:item:1", 1))
	write := sends(t.Context(), `UPDATE app.item SET value = 'ahead' WHERE id = 1`)
	if err := under(
		t.Context(),
		pool,
		write,
		old,
	); err != nil ||
		fencetest.Read(
			t,
			owner,
			1,
		) != (fencetest.Row{Value: "ahead", Token: 5, Updated: fencetest.Read(t, owner, 1).Updated}) {
		t.Errorf("a row ahead: %v, %+v", err, fencetest.Read(t, owner, 1))
	}
	wantLine(t, log.take(), "test:item:1", "ZF001", "row carries token 5")
	fencetest.MustRaise(t, owner, fencetest.ClaimOf("test:item:1", 7))
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		entersByHand(t, tx, old)
		return write(tx)
	})
	if err != nil {
		t.Error(err)
	}
	wantLine(t, log.take(), "test:item:1", "ZF001", "token 1 on a fence at 7")
	// A write under a claim is stamped and not logged.
	c := fencetest.MustRaise(t, owner, fencetest.ClaimOf("test:item:2", 9))
	if err := under(
		t.Context(),
		pool,
		sends(t.Context(), `UPDATE app.item SET value = 'new' WHERE id = 2`),
		c,
	); err != nil {
		t.Error(err)
	}
	if got, lines := fencetest.Read(t, owner, 2), log.take(); got.Token != 9 || len(lines) != 0 {
		t.Errorf("with a claim: %+v, %q", got, lines)
	}
	// A token does not fall, not even here.
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 0, value = 'old' WHERE id = 2`)
	if got := fencetest.Read(t, owner, 2); got.Token != 9 || got.Value != "old" {
		t.Errorf("the row is %+v", got)
	}
	// The way on.
	protect(t, owner, "app.item", "item:", "id")
	_, err = pool.Exec(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 2`)
	wantState(t, err, "ZF004")
	protectMode(t, owner, "observe", "app.item", "item:", "id")
	fencetest.Exec(t, pool, `UPDATE app.item SET value = 'x' WHERE id = 2`)
}

// If an old program rewrites a whole table, the log lines do not fill the server's disk.
func TestObserveLogsAHundredLinesPerTransaction(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	fencetest.Exec(t, owner, `INSERT INTO app.item (id) SELECT generate_series(10, 1000)`)
	protectMode(t, owner, "observe", "app.item", "item:", "id")
	pool, log := logged(t, owner)
	for range 2 {
		fencetest.Exec(t, pool, `UPDATE app.item SET value = 'x'`)
		if lines := log.take(); len(lines) != 101 || !strings.Contains(lines[100], "left out") {
			t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
		}
	}
}

// A bypass is logged, ends with the transaction, and lowers no token.
func TestBypassIsLoggedAndEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	fencetest.Exec(t, owner, `UPDATE app.item SET last_fencing_token = 5`)
	protect(t, owner, "app.item", "item:", "id")
	pool, log := logged(t, owner)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SELECT fencepost.bypass('ticket 17')`)
		fencetest.Exec(t, tx, `UPDATE app.item SET value = 'fixed', last_fencing_token = 0 WHERE id = 1`)
		fencetest.Exec(t, tx, `INSERT INTO app.item (id, last_fencing_token) VALUES (9, 3)`)
		fencetest.Exec(t, tx, `DELETE FROM app.item WHERE id = 2`)
		fencetest.Exec(t, tx, `SAVEPOINT s; TRUNCATE app.item; ROLLBACK TO s`)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := log.take()
	wantLine(t, lines, "bypass", "opened by session user postgres", "ticket 17")
	for _, operation := range []string{"UPDATE", "INSERT", "DELETE", "TRUNCATE"} {
		wantLine(t, lines, "bypass", operation+" on app.item", "session user postgres", "ticket 17")
	}
	if one, nine := fencetest.Read(
		t,
		owner,
		1,
	), fencetest.Read(
		t,
		owner,
		9,
	); one.Value != "fixed" || one.Token != 5 ||
		nine.Token != 3 {
		t.Errorf("rows %+v, %+v", one, nine)
	}
	_, err = pool.Exec(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)
	wantState(t, err, "ZF004")
	for _, reason := range []any{"", "  ", nil} {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.bypass($1)`, reason)
		wantState(t, err, "ZF002")
	}
}

// A cascade is a write like any other: it needs the claim of the rows it reaches.
func TestCascadesNeedTheClaimsOfTheRowsTheyReach(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]string{
		"delete": `ON DELETE CASCADE`, "null": `ON DELETE SET NULL`, "default": `ON DELETE SET DEFAULT`,
		"update": `ON UPDATE CASCADE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := fencetest.Setup(t)
			fencetest.Exec(t, pool, `CREATE TABLE app.part (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0,
				item bigint DEFAULT 3 REFERENCES app.item `+action+`); INSERT INTO app.part (id, item) VALUES (1, 1), (2, 2)`)
			protect(t, pool, "app.part", "part:", "id")
			change := `DELETE FROM app.item WHERE id = 1`
			if name == "update" {
				change = `UPDATE app.item SET id = 9 WHERE id = 1`
			}
			_, err := pool.Exec(t.Context(), change)
			wantState(t, err, "ZF004")
			if fencetest.Read(t, pool, 1).Value != "" {
				t.Error("the item changed")
			}
			c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:part:1", 4))
			if err := under(t.Context(), pool, sends(t.Context(), change), c); err != nil {
				t.Errorf("with the claim: %v", err)
			}
			var stamped []int64
			err = pool.QueryRow(t.Context(), `SELECT array_agg(last_fencing_token ORDER BY id) FROM app.part`).Scan(&stamped)
			if want := map[bool]int{true: 1, false: 2}[name == "delete"]; err != nil || len(stamped) != want ||
				want == 2 && stamped[0] != 4 {
				t.Errorf("parts stamped %v, %v", stamped, err)
			}
		})
	}
}

// Rows that replication applies carry no claim. protect decides whether they pass.
func TestTheProtectionAndReplication(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	apply := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
			if err := sends(t.Context(), `UPDATE app.item SET value = 'applied' WHERE id = 1`)(tx); err != nil {
				return err
			}
			return sends(t.Context(), `TRUNCATE app.item`)(tx)
		})
	}
	if err := apply(); err != nil {
		t.Errorf("replicated false: %v", err)
	}
	fencetest.Exec(t, pool, `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}', replicated => true)`)
	wantState(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
		return sends(t.Context(), `INSERT INTO app.item (id) VALUES (1)`)(tx)
	}), "ZF004")
	wantState(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
		return sends(t.Context(), `TRUNCATE app.item`)(tx)
	}), "ZF004")
	wantNoProblems(t, pool)
}

// Other BEFORE triggers run first, so the row that the protection checks is the row that is written. A trigger that
// would run after it is refused.
func TestTheProtectionIsTheLastTrigger(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(t, pool, `CREATE FUNCTION app.divert() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN NEW.id := 9; NEW.last_fencing_token := 0; RETURN NEW; END $$;
		CREATE TRIGGER zzz BEFORE INSERT OR UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.divert()`)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 4))
	write := sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)
	wantState(t, under(t.Context(), pool, write, c), "ZF004")
	wantNoProblems(t, pool)
	// The control, which Verify reports: the same trigger under a later name moves a row to another resource unchecked.
	fencetest.Exec(t, pool, `ALTER TRIGGER zzz ON app.item RENAME TO "~late"`)
	if err := under(t.Context(), pool, write, c); err != nil || fencetest.Read(t, pool, 9).Value != "x" {
		t.Errorf("the control: %v", err)
	}
	wantProblem(t, pool, fence.ProblemOrder, "app.item")
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.item')`)
	_, err := pool.Exec(t.Context(), `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}')`)
	wantState(t, err, "ZF002")
	wantNoProblems(t, pool)
}

// A table's owner may change a column's type to one with casts of their own. The trigger runs with the rights of
// fencepost's owner, and must not run these casts.
func TestTheProtectionRunsNoCodeOfTheTablesOwner(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	protect(t, pool, "app.item", "item:", "value")
	writer := newRole(t, pool, "writer", "")
	// Each raises an error of its own that names the current user.
	const body = ` LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('app.armed', true) = 'on' THEN
			RAISE EXCEPTION USING ERRCODE = 'EV001', MESSAGE = 'ran as ' || current_user;
		END IF;
		RETURN NULL; END $$;`
	fencetest.Exec(t, pool, `CREATE TYPE app.evil AS ENUM ('a');
		CREATE FUNCTION app.to_text(app.evil) RETURNS text`+body+`
		CREATE CAST (app.evil AS text) WITH FUNCTION app.to_text(app.evil) AS IMPLICIT;
		CREATE FUNCTION app.to_bigint(app.evil) RETURNS bigint`+body+`
		CREATE CAST (app.evil AS bigint) WITH FUNCTION app.to_bigint(app.evil) AS IMPLICIT;
		CREATE FUNCTION app.from_bigint(bigint) RETURNS app.evil`+body+`
		CREATE CAST (bigint AS app.evil) WITH FUNCTION app.from_bigint(bigint) AS IMPLICIT;
		CREATE FUNCTION app.checked(bigint) RETURNS boolean`+body+`
		CREATE DOMAIN app.evil_domain AS bigint CHECK (app.checked(VALUE));
		GRANT USAGE ON SCHEMA app TO `+writer+`; GRANT ALL ON ALL TABLES IN SCHEMA app TO `+writer)
	for alter, want := range map[string]string{
		`ALTER COLUMN value DROP DEFAULT, ALTER COLUMN value TYPE app.evil USING 'a'::app.evil`: "ZF004",
		`ALTER COLUMN last_fencing_token DROP DEFAULT, DROP CONSTRAINT item_last_fencing_token_check,
			ALTER COLUMN last_fencing_token TYPE app.evil USING 'a'::app.evil`: "ZF002",
		`ALTER COLUMN last_fencing_token DROP DEFAULT, ALTER COLUMN last_fencing_token TYPE app.evil_domain`: "ZF002",
	} {
		pool.Reset() // a session that remembers the column's old type would refuse by itself
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, tx, `ALTER TABLE app.item `+alter)
		wantProblem(t, tx, fence.ProblemTable, "app.item")
		fencetest.Exec(t, tx, `SET LOCAL ROLE `+writer+`; SET LOCAL app.armed = 'on'`)
		_, err = tx.Exec(t.Context(), `UPDATE app.item SET updated_at = now()`)
		wantState(t, err, want)
		_ = tx.Rollback(context.Background())
	}
	// The control: they are loaded.
	for _, sql := range []string{
		`SELECT 'a'::app.evil::text`, `SELECT 'a'::app.evil::bigint`,
		`SELECT 1::bigint::app.evil`, `SELECT 1::app.evil_domain`,
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SET LOCAL app.armed = 'on'`)
			return sends(t.Context(), sql)(tx)
		})
		wantState(t, err, "EV001")
	}
}
