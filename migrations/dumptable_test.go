package migrations_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// kinds is what verify finds, as "kind relation", one line each.
func kinds(t *testing.T, db *sql.DB) string {
	t.Helper()
	return value[string](
		t,
		db,
		`SELECT coalesce(string_agg(kind || ' ' || relation, E'\n' ORDER BY kind, relation), '') FROM fencepost.verify()`,
	)
}

func wantKinds(t *testing.T, db *sql.DB, want ...string) {
	t.Helper()
	if got := kinds(t, db); got != strings.Join(want, "\n") {
		t.Errorf("verify finds:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// wantWrite writes a row without a claim, and requires a SQLSTATE, "" for a write that passes.
func wantWrite(t *testing.T, db *sql.DB, table, state string) {
	t.Helper()
	tx := begin(t, db)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO `+table+` (id) VALUES (-1)`); sqlState(err) != state {
		t.Errorf("a write to %s without a claim: %v, want SQLSTATE %q", table, err, state)
	}
}

// itemRule is how guarded protects app.item.
const itemRule = `'n-1', E'it''em\n:"%', '{id}'`

// C48: a dump of a protected table alone, restored into another database.
func TestCase48_ADumpOfOneTableElsewhere(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	dump := testenv.Dump(t, address, "--table=app.item")
	restored := func(t *testing.T, prepare func(db *sql.DB)) (db *sql.DB, said string) {
		t.Helper()
		copied := testenv.EmptyDatabase(t)
		db = open(t, copied)
		mustExec(t, db, `CREATE SCHEMA app`)
		prepare(db)
		said = testenv.Restore(t, copied, dump)
		if n := value[int](t, db, `SELECT count(*) FROM app.item`); n != 300 {
			t.Errorf("%d rows came", n)
		}
		return db, said
	}
	protectAgain := func(t *testing.T, db *sql.DB) {
		t.Helper()
		wantWrite(t, db, "app.item", "")
		mustExec(t, db, `SELECT fencepost.protect('app.item', `+itemRule+`)`)
		wantKinds(t, db)
		wantWrite(t, db, "app.item", "ZF004")
	}
	t.Run("without fencepost", func(t *testing.T) {
		t.Parallel()
		db, said := restored(t, func(*sql.DB) {})
		if strings.Count(said, `schema "fencepost" does not exist`) != 2 {
			t.Errorf("restore: %s", said)
		}
		up(t, db, nil)
		wantKinds(t, db) // nothing is left that could tell
		protectAgain(t, db)
	})
	t.Run("without such a rule", func(t *testing.T) {
		t.Parallel()
		db, said := restored(t, func(db *sql.DB) { up(t, db, nil) })
		if !strings.Contains(said, "function fencepost.protection_") {
			t.Errorf("restore: %s", said)
		}
		wantKinds(t, db, "stray app.item")
		protectAgain(t, db)
	})
	t.Run("with such a rule", func(t *testing.T) {
		t.Parallel()
		db, said := restored(t, func(db *sql.DB) {
			up(t, db, nil)
			mustExec(t, db, `CREATE TABLE app.twin (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
				`SELECT fencepost.protect('app.twin', `+itemRule+`)`)
		})
		if said != "" {
			t.Errorf("restore: %s", said)
		}
		wantKinds(t, db, "stray app.item")
		wantWrite(t, db, "app.item", "ZF004")
		up(t, db, nil)
		wantKinds(t, db)
		wantNothingAmiss(t, db)
	})
}

// C48: a protected table is dumped, dropped and restored in the same database.
func TestCase48_ADumpOfOneTableAndBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile string
		found     []string
		write     string
	}{
		"at once": {`SELECT`, nil, "ZF004"},
		// The function of the dropped table's protection is unused.
		"another table was protected meanwhile": {
			`SELECT fencepost.unprotect('app.part')`, []string{"recreated app.item", "stray app.item"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := guarded(t)
			db := open(t, address)
			dump := testenv.Dump(t, address, "--table=app.item")
			mustExec(t, db, `DROP TABLE app.item`, c.meanwhile)
			if said := testenv.Restore(t, address, dump); (said != "") != (c.write == "") {
				t.Errorf("restore: %s", said)
			}
			wantKinds(t, db, c.found...)
			wantWrite(t, db, "app.item", c.write)
			mustExec(t, db, `SELECT fencepost.protect('app.item', `+itemRule+`)`)
			wantKinds(t, db)
			wantWrite(t, db, "app.item", "ZF004")
			if n := value[int](t, db, `SELECT count(*) FROM fencepost.protected WHERE table_name = 'item'`); n != 1 {
				t.Errorf("%d records of one table", n)
			}
		})
	}
}

// C33: a swapped table is found in a restored database as well.
func TestCase33_ASwapComesWithADump(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	mustExec(
		t,
		open(t, address),
		`CREATE TABLE app.item_new (LIKE app.item INCLUDING ALL)`,
		`ALTER TABLE app.item RENAME TO item_old`,
		`ALTER TABLE app.item_new RENAME TO item`,
	)
	wantKinds(t, open(t, address), "swapped app.item")
	copied := testenv.EmptyDatabase(t)
	if said := testenv.Restore(t, copied, testenv.Dump(t, address)); said != "" {
		t.Errorf("restore: %s", said)
	}
	db := open(t, copied)
	up(t, db, nil)
	wantKinds(t, db, "swapped app.item")
	wantWrite(t, db, "app.item_old", "ZF004")
}

// C48: in a fresh cluster into which the database was restored, the number of a dropped table belongs to another table.
func TestCase48_ANumberIsMetInAFreshCluster(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	up(t, db, nil)
	mustExec(t, db, `CREATE SCHEMA app`,
		`SELECT lo_unlink(lo_creat(-1)) FROM generate_series(1, 5000)`, // numbers that the fresh cluster has not come to
		`CREATE TABLE app.gone (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
		`SELECT fencepost.protect('app.gone', 'n', 'gone:', '{id}')`)
	number := value[int64](t, db, `SELECT 'app.gone'::regclass::oid`)
	mustExec(t, db, `DROP TABLE app.gone`)
	fresh := testenv.OwnPostgres(t).URL()
	if said := testenv.Restore(t, fresh, testenv.Dump(t, address, "-O", "-x")); said != "" {
		t.Errorf("restore: %s", said)
	}
	db = open(t, fresh)
	up(t, db, nil)
	if value[int64](t, db, `SELECT relid::oid FROM fencepost.protected`) != number {
		t.Fatal("the dump did not bring the number")
	}
	mustExec(
		t,
		db,
		`DO $$ BEGIN WHILE lo_creat(-1)::bigint <> (SELECT relid::oid::bigint - 1
			FROM fencepost.protected) LOOP END LOOP; END $$`,
		`CREATE TABLE app.innocent (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	)
	if value[int64](t, db, `SELECT 'app.innocent'::regclass::oid`) != number {
		t.Fatal("the number is not met")
	}
	wantKinds(t, db)
	wantWrite(t, db, "app.innocent", "")
	if n := value[int](t, db, `SELECT count(*) FROM fencepost.protection_rule('app', 'innocent')`); n != 0 {
		t.Error("an innocent table has a rule")
	}
	mustExec(t, db, `SELECT fencepost.protect('app.innocent', 'n', 'innocent:', '{id}')`)
	wantKinds(t, db)
	wantWrite(t, db, "app.innocent", "ZF004")
}

// A dump that leaves the schema fencepost out brings tables without protections. psql says so while it restores;
// afterwards nothing in the database can tell, and the program's own migrations, whose records stayed behind as
// well, make the protections anew.
func TestADumpWithoutTheSchemaHasNoProtections(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	plan := func() *migrations.Options {
		rule := accountsRule("account:")
		return &migrations.Options{Also: []*goose.Migration{tokenColumn(t, accounts), protection(t, 1001, rule)}}
	}
	mustExec(t, open(t, address), createAccounts)
	up(t, open(t, address), plan())
	dump := testenv.Dump(t, address, "-N", "fencepost")
	for name, prepare := range map[string]func(db *sql.DB){
		"restored first":           func(*sql.DB) {},
		"into a migrated database": func(db *sql.DB) { up(t, db, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := testenv.EmptyDatabase(t)
			db := open(t, copied)
			prepare(db)
			if said := testenv.Restore(t, copied, dump); !strings.Contains(said, "fencepost") {
				t.Errorf("restore: %s", said)
			}
			write := `UPDATE public.accounts SET balance = 0 WHERE id = 1`
			mustExec(t, db, write) // the damage
			up(t, db, nil)
			if name == "restored first" {
				wantKinds(t, db)
			} else {
				wantKinds(t, db, "stray public.accounts")
			}
			if applied := versions(up(t, db, plan())); !equal(applied, []int64{tokenVersion, 1001}) {
				t.Errorf("Up applied %v", applied)
			}
			wantKinds(t, db)
			wantNothingAmiss(t, db)
			wantStates(t, db, "ZF004", write)
		})
	}
}
