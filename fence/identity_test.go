package fence_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// found returns the problems that Verify finds, as "kind relation", sorted.
func found(t *testing.T, db fence.Querier) (list []string) {
	t.Helper()
	for _, p := range problems(t, db) {
		list = append(list, string(p.Kind)+" "+p.Relation)
		if p.Text == "" || p.Table == "" {
			t.Errorf("nothing for people: %+v", p)
		}
	}
	slices.Sort(list)
	return list
}

func wantFound(t *testing.T, db fence.Querier, want ...string) {
	t.Helper()
	if got := found(t, db); !slices.Equal(got, want) {
		t.Errorf("problems: %q, want %q", got, want)
	}
}

// wantProtection checks the answer of ProtectionOf for app.<name>: "" for no protection, "refused" if one is missing,
// otherwise the prefix.
func wantProtection(t *testing.T, db fence.Querier, name, want string) {
	t.Helper()
	d, err := pgtable.ProtectionOf(t.Context(), db, pgtable.Table{Schema: "app", Name: name, Key: []string{"id"}})
	got := ""
	switch {
	case errors.Is(err, fence.ErrTable):
		got = "refused"
	case err != nil:
		t.Fatal(err)
	case d != nil:
		got = d.Prefix
	}
	if got != want {
		t.Errorf("the protection of %s: %q, want %q: %v", name, got, want, err)
	}
}

const swap = `CREATE TABLE app.item_new (LIKE app.item INCLUDING ALL);
	ALTER TABLE app.item RENAME TO item_old; ALTER TABLE app.item_new RENAME TO item`

// However another table comes to have the name of a protected one, Verify reports it at once, and programs get an error
// when they start.
func TestCase33_AnotherTableUnderAProtectedNameIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    string
		found []string
	}{
		"renamed": {swap, []string{"swapped app.item"}},
		"to another schema": {`CREATE SCHEMA old; ALTER TABLE app.item SET SCHEMA old;
			CREATE TABLE app.item (LIKE old.item INCLUDING ALL)`, []string{"swapped app.item"}},
		"the schema renamed": {`ALTER SCHEMA app RENAME TO old; CREATE SCHEMA app;
			CREATE TABLE app.item (LIKE old.item INCLUDING ALL)`, []string{"swapped app.item"}},
		"with its rows": {`ALTER TABLE app.item RENAME TO item_old; CREATE TABLE app.item AS TABLE app.item_old;
			ALTER TABLE app.item ALTER id SET NOT NULL, ALTER last_fencing_token SET NOT NULL`, []string{"swapped app.item"}},
		"partitioned": {`ALTER TABLE app.item RENAME TO item_old;
			CREATE TABLE app.item (LIKE app.item_old INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY RANGE (id);
			CREATE TABLE app.item_1 PARTITION OF app.item DEFAULT`, []string{"swapped app.item"}},
		"dropped, and another renamed": {`CREATE TABLE app.item_new (LIKE app.item INCLUDING ALL); DROP TABLE app.item;
			ALTER TABLE app.item_new RENAME TO item`, []string{"recreated app.item"}},
		"its protection disabled": {`ALTER TABLE app.item DISABLE TRIGGER "~fencepost";` +
			swap, []string{"disabled app.item_old", "swapped app.item"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := protected(t)
			fencetest.Exec(t, pool, c.do)
			wantFound(t, pool, c.found...)
			wantProtection(t, pool, "item", "refused")
			// The damage that it tells of.
			fencetest.Exec(t, pool, `UPDATE app.item SET value = 'unaware'`)
			protect(t, pool, "app.item", "item:", "id")
			wantProtection(t, pool, "item", "item:")
			_, err := pool.Exec(t.Context(), `INSERT INTO app.item (id) VALUES (99)`)
			wantState(t, err, "ZF004")
		})
	}
}

// The way back from a swap, either way.
func TestCase33_ASwapIsPutRight(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(t, pool, swap)
	protect(t, pool, "app.item", "item:", "id")
	wantFound(t, pool, "renamed app.item_old")
	protect(t, pool, "app.item_old", "old:", "id")
	wantFound(t, pool)
	wantProtection(t, pool, "item_old", "old:")

	fencetest.Exec(t, pool, `ALTER TABLE app.item RENAME TO item_new; ALTER TABLE app.item_old RENAME TO item`)
	wantFound(t, pool, "renamed app.item", "renamed app.item_new")
	protect(t, pool, "app.item", "old:", "id")
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.item_new')`)
	wantFound(t, pool)
	wantProtection(t, pool, "item", "old:")
	wantProtection(t, pool, "item_new", "")

	other := protected(t)
	fencetest.Exec(t, other, swap+`; ALTER TABLE app.item RENAME TO item_new; ALTER TABLE app.item_old RENAME TO item`)
	wantFound(t, other)
	fencetest.Exec(t, other, `DROP TABLE app.item; ALTER TABLE app.item_new RENAME TO item`)
	wantFound(t, other, "recreated app.item")
	fencetest.Exec(t, other, `SELECT fencepost.unprotect('app.item')`) // it is to have no protection
	wantFound(t, other)
	wantProtection(t, other, "item", "")
}

// A table that was only renamed is reported as renamed. Once it is protected again, it is known by its new name. That
// takes no lock, because its protection still stands.
func TestCase33_ARenamedTableIsNotASwappedOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ do, table string }{
		"table":  {`ALTER TABLE app.item RENAME TO article`, "app.article"},
		"schema": {`CREATE SCHEMA shop; ALTER TABLE app.item SET SCHEMA shop`, "shop.item"},
		"a view in front": {`ALTER TABLE app.item RENAME TO article;
			CREATE VIEW app.item AS TABLE app.article`, "app.article"},
		"both": {`ALTER TABLE app.item RENAME TO article; ALTER SCHEMA app RENAME TO shop`, "shop.article"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := protected(t)
			fencetest.Exec(t, pool, c.do)
			wantFound(t, pool, "renamed "+c.table)
			_, err := pool.Exec(t.Context(), `INSERT INTO `+c.table+` (id) VALUES (99)`)
			wantState(t, err, "ZF004")
			reader, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fencetest.Exec(t, reader, `LOCK TABLE `+c.table+` IN ACCESS SHARE MODE`)
			fencetest.Exec(t, pool, `SET lock_timeout = '5s'`)
			protect(t, pool, c.table, "item:", "id")
			if err := reader.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantFound(t, pool)
		})
	}
}

// Partitions are attached and detached: a write through the partitioned table meets its protection, and a partition
// that was detached is reported.
func TestCase33_PartitionsThatAreSwapped(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(t, pool, createLog)
	protect(t, pool, "app.log", "log:", "id")
	fencetest.Exec(
		t,
		pool,
		`CREATE TABLE app.log_new (LIKE app.log_1 INCLUDING ALL); ALTER TABLE app.log DETACH PARTITION app.log_1;
		ALTER TABLE app.log ATTACH PARTITION app.log_new FOR VALUES FROM (0) TO (10)`,
	)
	wantFound(t, pool, "missing app.log_new", "stray app.log_1")
	wantProtection(t, pool, "log_1", "refused")
	wantProtection(t, pool, "log_new", "log:")
	_, err := pool.Exec(t.Context(), `INSERT INTO app.log_new (id, day) VALUES (3, 3)`)
	wantState(t, err, "ZF004")
	protect(t, pool, "app.log", "log:", "id")
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.log_1')`)
	wantFound(t, pool)
	wantProtection(t, pool, "log_1", "")
	// All of it swapped, parts included.
	fencetest.Exec(t, pool, `ALTER TABLE app.log RENAME TO log_old; CREATE TABLE app.log (LIKE app.log_old INCLUDING ALL)`)
	wantFound(t, pool, "swapped app.log")
	wantProtection(t, pool, "log", "refused")
	wantProtection(t, pool, "log_2a", "log:")
}

// A record that one owner writes about another owner's table is ignored.
func TestCase33_NobodyProtectsAnothersName(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	strangerRole, stranger := logIn(t, l.admin, "stranger")
	fencetest.Exec(t, l.admin, `SELECT fencepost.grant_owner($1::text::regrole)`, strangerRole)
	fencetest.Exec(t, l.admin, createOther+`; CREATE SCHEMA strange AUTHORIZATION `+strangerRole)
	fencetest.Exec(
		t,
		stranger,
		`CREATE TABLE strange.t (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	)
	protect(t, stranger, "strange.t", "t:", "id")
	for _, name := range []string{"other", "item", "nobodys_yet"} {
		_, err := stranger.Exec(
			t.Context(),
			`INSERT INTO fencepost.protected SELECT relid, 'app', $1, namespace, prefix, columns,
			token_column, mode, replicated FROM fencepost.protected WHERE schema_name = 'strange'`,
			name,
		)
		wantState(t, err, "42501")
	}
	fencetest.Exec(t, l.admin, `CREATE TABLE app.nobodys_yet (LIKE app.other INCLUDING ALL)`)
	wantProtection(t, l.admin, "other", "")
	wantProtection(t, l.admin, "nobodys_yet", "")
	wantFound(t, l.admin)
	fencetest.Exec(t, stranger, `ALTER TABLE strange.t RENAME TO u`)
	protect(t, stranger, "strange.u", "t:", "id")
	fencetest.Exec(
		t,
		stranger,
		`DROP TABLE strange.u; CREATE TABLE strange.u (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	)
	wantFound(t, stranger, "recreated strange.u")
	protect(t, stranger, "strange.u", "t:", "id")
	wantFound(t, stranger)
}

// The number of a dropped table may belong to another table now: records of dropped tables, as a dump brings them,
// raise no alarm and give no table a rule.
func TestCase48_ANumberIsNoIdentity(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(
		t,
		pool,
		createOther+`; CREATE TABLE app.third (LIKE app.other INCLUDING ALL); CREATE INDEX third_value ON app.third (value)`,
	)
	fencetest.Exec(t, pool, `DROP TABLE app.item`)
	wantFound(t, pool)
	for _, innocent := range []string{"app.other", "app.third", "app.third_value", "pg_class"} {
		fencetest.Exec(t, pool, `UPDATE fencepost.protected SET relid = $1::text::regclass`, innocent)
		wantFound(t, pool)
		wantProtection(t, pool, "other", "")
		wantProtection(t, pool, "third", "")
		fencetest.Exec(t, pool, `INSERT INTO app.third (id) SELECT count(*) FROM app.third`)
	}
	// One that is protected itself.
	protect(t, pool, "app.other", "other:", "id")
	fencetest.Exec(t, pool, `UPDATE fencepost.protected SET relid = 'app.other'::regclass WHERE table_name = 'item'`)
	wantFound(t, pool)
	wantProtection(t, pool, "other", "other:")
	// The name still counts.
	fencetest.Exec(t, pool, `CREATE TABLE app.item (LIKE app.third INCLUDING ALL)`)
	wantFound(t, pool, "recreated app.item")
	wantProtection(t, pool, "item", "refused")
	protect(t, pool, "app.item", "again:", "id")
	wantFound(t, pool)
	wantProtection(t, pool, "other", "other:")
	wantProtection(t, pool, "item", "again:")
	if n := records(t, pool); n != 2 {
		t.Errorf("%d records of two tables", n)
	}
}

func records(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.protected`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A table that is restored from a dump of that table alone, with its trigger, counts as the protected one.
func TestCase48_ARestoredTableIsKnownByItsProtection(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	var trigger, truncate string
	err := pool.QueryRow(t.Context(), `SELECT max(pg_get_triggerdef(oid)) FILTER (WHERE tgname = '~fencepost'),
		max(pg_get_triggerdef(oid)) FILTER (WHERE tgname <> '~fencepost') FROM pg_trigger WHERE tgrelid = 'app.item'::regclass
			AND NOT tgisinternal`).
		Scan(&trigger, &truncate)
	if err != nil {
		t.Fatal(err)
	}
	restore := `CREATE TABLE app.dumped (LIKE app.item INCLUDING ALL); DROP TABLE app.item;
		ALTER TABLE app.dumped RENAME TO item; `
	fencetest.Exec(t, pool, restore+trigger+`; `+truncate)
	wantFound(t, pool)
	wantProtection(t, pool, "item", "item:")
	// Half of it is not all of it.
	fencetest.Exec(t, pool, `DROP TRIGGER "~fencepost_truncate" ON app.item`)
	wantFound(t, pool, "missing app.item")
	protect(t, pool, "app.item", "item:", "id")
	wantFound(t, pool)
	if n := records(t, pool); n != 1 {
		t.Errorf("%d records of one table", n)
	}
	fencetest.Exec(t, pool, strings.ReplaceAll(restore, "dumped", "plain"))
	wantFound(t, pool, "recreated app.item")
}
