package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func problems(t *testing.T, db fence.Querier) []fence.Problem {
	t.Helper()
	found, err := fence.Verify(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantNoProblems(t *testing.T, db fence.Querier) {
	t.Helper()
	if found := problems(t, db); len(found) != 0 {
		t.Errorf("problems: %v", found)
	}
}

// wantProblem checks that there is exactly one.
func wantProblem(t *testing.T, db fence.Querier, kind fence.ProblemKind, relation string) {
	t.Helper()
	found := problems(t, db)
	if len(found) != 1 || found[0].Kind != kind || found[0].Relation != relation || found[0].Text == "" {
		t.Errorf("problems: %v, want one of kind %s in %s", found, kind, relation)
	}
}

// Verify finds whatever an owner or superuser may do to a protection, and protect repairs it if it can be repaired.
func TestVerifyFindsWhatWasDoneToAProtection(t *testing.T) { //nolint:funlen // a table of cases
	t.Parallel()
	const (
		protectionName = `(SELECT tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'app.item'::regclass
			AND tgname = '~fencepost')`
		replace = `DO $$ BEGIN
			EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql %s', ` + protectionName
	)
	for name, c := range map[string]struct {
		do       string
		kind     fence.ProblemKind
		repaired bool
	}{
		"row trigger disabled": {`ALTER TABLE app.item DISABLE TRIGGER "~fencepost"`, fence.ProblemDisabled, true},
		"truncate trigger disabled": {
			`ALTER TABLE app.item DISABLE TRIGGER "~fencepost_truncate"`,
			fence.ProblemDisabled, true,
		},
		"enabled for replicas":     {`ALTER TABLE app.item ENABLE REPLICA TRIGGER "~fencepost"`, fence.ProblemDisabled, true},
		"enabled always":           {`ALTER TABLE app.item ENABLE ALWAYS TRIGGER "~fencepost"`, fence.ProblemDisabled, true},
		"row trigger dropped":      {`DROP TRIGGER "~fencepost" ON app.item`, fence.ProblemMissing, true},
		"truncate trigger dropped": {`DROP TRIGGER "~fencepost_truncate" ON app.item`, fence.ProblemMissing, true},
		"row trigger renamed":      {`ALTER TRIGGER "~fencepost" ON app.item RENAME TO mine`, fence.ProblemMissing, false},
		"function replaced":        {replace + `, 'AS ''BEGIN RETURN NEW; END''');  END $$`, fence.ProblemAltered, true},
		"function's rights": {
			`DO $$ BEGIN EXECUTE format('ALTER FUNCTION %s() SECURITY INVOKER', ` + protectionName + `); END $$`,
			fence.ProblemAltered, true,
		},
		"function's path": {
			`DO $$ BEGIN EXECUTE format('ALTER FUNCTION %s() RESET search_path', ` + protectionName + `); END $$`,
			fence.ProblemAltered, true,
		},
		"trigger with a condition": {
			`DO $$ BEGIN EXECUTE format('DROP TRIGGER "~fencepost" ON app.item; CREATE TRIGGER "~fencepost"
			BEFORE INSERT OR UPDATE OR DELETE ON app.item FOR EACH ROW WHEN (false)
				EXECUTE FUNCTION %s()', ` + protectionName + `); END $$`,
			fence.ProblemAltered, true,
		},
		"trigger for less": {`DO $$ BEGIN EXECUTE format('DROP TRIGGER "~fencepost" ON app.item; CREATE TRIGGER "~fencepost"
			BEFORE INSERT OR DELETE ON app.item FOR EACH ROW
				EXECUTE FUNCTION %s()', ` + protectionName + `); END $$`, fence.ProblemAltered, true},
		"token may be NULL": {`ALTER TABLE app.item ALTER last_fencing_token DROP NOT NULL`, fence.ProblemTable, false},
		"token's type":      {`ALTER TABLE app.item ALTER last_fencing_token TYPE numeric`, fence.ProblemTable, false},
		"token gone":        {`ALTER TABLE app.item DROP COLUMN last_fencing_token`, fence.ProblemTable, false},
		"key renamed":       {`ALTER TABLE app.item RENAME id TO number`, fence.ProblemTable, false},
		"key's type":        {`ALTER TABLE app.item ALTER id TYPE numeric`, fence.ProblemTable, false},
		"an heir":           {`CREATE TABLE app.heir () INHERITS (app.item)`, fence.ProblemTable, false},
		"a trigger after it": {`CREATE TRIGGER "~x" BEFORE UPDATE ON app.item FOR EACH ROW
			EXECUTE FUNCTION suppress_redundant_updates_trigger()`, fence.ProblemOrder, false},
		"made again": {
			`DROP TABLE app.item; CREATE TABLE app.item (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
			fence.ProblemRecreated, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := protected(t)
			wantNoProblems(t, pool)
			fencetest.Exec(t, pool, c.do)
			if name == "row trigger renamed" {
				if found := problems(t, pool); len(found) == 0 || found[0].Kind != c.kind {
					t.Errorf("problems: %v", found)
				}
				return
			}
			wantProblem(t, pool, c.kind, "app.item")
			_, err := pool.Exec(t.Context(), `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}')`)
			if !c.repaired {
				wantState(t, err, "ZF002")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantNoProblems(t, pool)
			_, err = pool.Exec(t.Context(), `INSERT INTO app.item (id) VALUES (9)`)
			wantState(t, err, "ZF004")
		})
	}
}

const createLog = `CREATE SCHEMA app;
	CREATE TABLE app.log (id bigint, day int, value text, last_fencing_token bigint NOT NULL DEFAULT 0,
			PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
	CREATE TABLE app.log_1 PARTITION OF app.log FOR VALUES FROM (0) TO (10);
	CREATE TABLE app.log_2 PARTITION OF app.log FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (day);
	CREATE TABLE app.log_2a PARTITION OF app.log_2 FOR VALUES FROM (10) TO (15);
	CREATE TABLE app.log_2b PARTITION OF app.log_2 FOR VALUES FROM (15) TO (20);
	INSERT INTO app.log (id, day) VALUES (1, 1), (2, 11);`

// Every part of a partitioned table has the protection, whichever name a write uses. New parts have it for rows at
// once, and Verify reports what else they lack.
func TestPartitions(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(t, pool, createLog)
	protect(t, pool, "app.log", "log:", "id")
	wantNoProblems(t, pool)
	refused := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			_, err := pool.Exec(t.Context(), sql)
			wantState(t, err, "ZF004")
		}
	}
	refused(`UPDATE app.log SET value = 'x'`, `UPDATE app.log_1 SET value = 'x'`, `DELETE FROM app.log_2a`,
		`INSERT INTO app.log_2 (id, day) VALUES (7, 17)`, `UPDATE app.log SET day = 12 WHERE id = 1`,
		`TRUNCATE app.log`, `TRUNCATE app.log_1`, `TRUNCATE app.log_2`, `TRUNCATE app.log_2a`)
	// A row that moves to another partition stays in the same resource.
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:log:1", 3))
	if err := under(t.Context(), pool, sends(t.Context(), `UPDATE app.log SET day = 17 WHERE id = 1`), c); err != nil {
		t.Error(err)
	}
	var stamped int64
	err := pool.QueryRow(t.Context(), `SELECT last_fencing_token FROM app.log_2b WHERE id = 1`).Scan(&stamped)
	if err != nil || stamped != 3 {
		t.Errorf("moved: token %d, %v", stamped, err)
	}

	fencetest.Exec(t, pool, `CREATE TABLE app.log_3 PARTITION OF app.log FOR VALUES FROM (20) TO (30)`)
	wantProblem(t, pool, fence.ProblemMissing, "app.log_3")
	refused(`INSERT INTO app.log_3 (id, day) VALUES (3, 23)`)
	fencetest.Exec(t, pool, `TRUNCATE app.log_3`) // what Verify warned of
	protect(t, pool, "app.log", "log:", "id")
	wantNoProblems(t, pool)
	refused(`TRUNCATE app.log_3`)

	fencetest.Exec(
		t,
		pool,
		`CREATE TABLE app.log_4 (LIKE app.log INCLUDING ALL); ALTER TABLE app.log ATTACH PARTITION app.log_4
			FOR VALUES FROM (30) TO (40)`,
	)
	wantProblem(t, pool, fence.ProblemMissing, "app.log_4")
	refused(`INSERT INTO app.log_4 (id, day) VALUES (3, 33)`)
	protect(t, pool, "app.log", "log:", "id")
	wantNoProblems(t, pool)

	fencetest.Exec(t, pool, `ALTER TABLE app.log DETACH PARTITION app.log_4`)
	wantProblem(t, pool, fence.ProblemStray, "app.log_4")
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.log_4')`)
	wantNoProblems(t, pool)

	fencetest.Exec(t, pool, `ALTER TABLE app.log_2a DISABLE TRIGGER "~fencepost"`)
	wantProblem(t, pool, fence.ProblemDisabled, "app.log_2a")
	protect(t, pool, "app.log", "log:", "id")
	wantNoProblems(t, pool)
	fencetest.Exec(t, pool, `SELECT fencepost.protect('app.log', 'test', 'log:', '{id}', replicated => true)`)
	wantNoProblems(t, pool)
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.log')`)
	wantNoProblems(t, pool)
	fencetest.Exec(t, pool, `TRUNCATE app.log`)
}

// If everything is as requested, protect takes no lock, so it may be called at every deployment.
func TestProtectAgainTakesNoLock(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 3))
	err := under(t.Context(), pool, func(tx pgx.Tx) error {
		if err := sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)(tx); err != nil {
			return err
		}
		return pgx.BeginFunc(t.Context(), pool, func(other pgx.Tx) error {
			fencetest.Exec(t, other, `SET LOCAL lock_timeout = '1s'`)
			protect(t, other, "app.item", "item:", "id")
			// The control: a change waits for the writer.
			_, err := other.Exec(t.Context(), `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}', mode => 'observe')`)
			wantState(t, err, "55P03")
			return err
		})
	}, c)
	wantState(t, err, "55P03")
}

// Verify also checks what the protections rest on, and names each right that is wrong.
func TestVerifyFindsRightsThatAreTooWide(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(t, pool, `GRANT EXECUTE ON FUNCTION fencepost.check_write TO PUBLIC`)
	wantProblem(t, pool, fence.ProblemRight, "fencepost.check_write(text,bigint,oid,text,text)")
}

// A role that may not call Verify gets an error that says so.
func TestVerifyNeedsARight(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	role := newRole(t, pool, "nobody", "")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SET LOCAL ROLE `+role)
		_, err := fence.Verify(t.Context(), tx)
		return err
	})
	wantState(t, err, "42501")
	if errors.Is(err, fence.ErrUnavailable) {
		t.Error(err)
	}
}
