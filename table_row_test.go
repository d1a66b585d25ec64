package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
)

func TestATableInsertsUpsertsAndDeletes(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key := t.Context(), fencepost.Key{"10"}
	l := b.acquire(t, "invoice-10", nil)
	if err := b.table.Insert(ctx, l, key, fencepost.Set{"value": "new"}); err != nil {
		t.Fatal(err)
	}
	// Columns that are not named take their defaults.
	if r := b.read(t, "10"); r.Value != "new" || r.LastFencingToken != l.Token() || r.UpdatedAt.IsZero() {
		t.Errorf("the row is %+v", r)
	}
	wantErr(t, b.table.Insert(ctx, l, key, nil), fencepost.ErrExists)
	if inserted, err := b.table.Upsert(ctx, l, key, fencepost.Set{"value": "put"}); inserted || err != nil {
		t.Fatal(inserted, err)
	}
	if r := b.read(t, "10"); r.Value != "put" {
		t.Errorf("the row is %+v", r)
	}
	if err := b.table.Delete(ctx, l, key); err != nil {
		t.Fatal(err)
	}
	wantErr(t, b.table.Delete(ctx, l, key), fencepost.ErrNotFound)
	if inserted, err := b.table.Upsert(ctx, l, key, nil); !inserted || err != nil {
		t.Fatal(inserted, err)
	}
	if r := b.read(t, "10"); r.Value != "" || r.LastFencingToken != l.Token() {
		t.Errorf("the row is %+v", r)
	}
}

// every has each method that touches a row, by name.
func every(
	t *testing.T,
	table *fencepost.Table[Invoice],
	l *fencepost.Lease,
	key fencepost.Key,
) map[string]func() error {
	t.Helper()
	ctx, set := t.Context(), fencepost.Set{"value": "x"}
	return map[string]func() error{
		"get":    func() error { return second(table.Get(ctx, l, key)) },
		"claim":  func() error { return second(table.Stamp(ctx, l, key)) },
		"update": func() error { return table.Update(ctx, l, key, set) },
		"insert": func() error { return table.Insert(ctx, l, key, set) },
		"upsert": func() error { return second(table.Upsert(ctx, l, key, set)) },
		"delete": func() error { return table.Delete(ctx, l, key) },
		"modify": func() error {
			return table.Modify(ctx, l, key, func(row *Invoice) error { row.Value += "x"; return nil })
		},
	}
}

// Each method refuses a lease of another resource, of another store, a lease that is over, and nil, and sends nothing.
func TestEveryMethodRefusesBeforeAnyTraffic(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	foreign := acquire(t, b.another(t), "invoice-2", nil)
	over := b.acquire(t, "invoice-3", nil)
	if err := over.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := b.pool.Stat().AcquireCount()
	for what, c := range map[string]struct {
		lease *fencepost.Lease
		key   fencepost.Key
		want  error
	}{
		"another resource":     {l, fencepost.Key{"2"}, fencepost.ErrInvalid},
		"another store":        {foreign, fencepost.Key{"2"}, fencepost.ErrInvalid},
		"no lease":             {nil, fencepost.Key{"1"}, fencepost.ErrInvalid},
		"no key":               {l, nil, fencepost.ErrInvalid},
		"a long key":           {l, fencepost.Key{"1", "1"}, fencepost.ErrInvalid},
		"a NULL":               {l, fencepost.Key{nil}, fencepost.ErrInvalid},
		"a lease that is over": {over, fencepost.Key{"3"}, fencepost.ErrLost},
	} {
		for name, call := range every(t, b.table, c.lease, c.key) {
			if err := call(); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: got %v, want %v", what, name, err, c.want)
			}
		}
	}
	for name, err := range map[string]error{
		"a key column":      b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"id": "2"}),
		"a key column, new": b.table.Insert(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"id": "2"}),
		"a key column, put": second(b.table.Upsert(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"id": "2"})),
		"no function":       b.table.Modify(t.Context(), l, fencepost.Key{"1"}, nil),
		"no columns":        b.table.Update(t.Context(), l, fencepost.Key{"1"}, nil),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.pool.Stat().AcquireCount() - before; n != 0 {
		t.Errorf("%d connections were used", n)
	}
	// The control: the same calls under the right lease are sent.
	for _, call := range every(t, b.table, l, fencepost.Key{"1"}) {
		_ = call()
	}
	if n := b.pool.Stat().AcquireCount() - before; n < 7 {
		t.Errorf("the control used %d connections", n)
	}
}

// I3: once a claim has committed, no method writes under an older token. The control writes by the row's column alone.
func TestInvariant3_NoMethodWritesUnderAnOvertakenLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for name := range every(t, b.table, nil, nil) {
		if name == "get" {
			continue // reads
		}
		l := b.acquire(t, "invoice-1", nil)
		if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).
			Err(); err != nil { // Redis forgets the lease; its holder has not noticed
			t.Fatal(err)
		}
		rival := acquire(t, b.another(t), "invoice-1", nil)
		before := b.read(t, "1")
		err := every(t, b.table, l, fencepost.Key{"1"})[name]()
		if errors.Is(err, fencepost.ErrLost) {
			t.Fatalf("%s: the holder noticed: %v", name, err)
		}
		wantStale(t, err, l.Token(), rival.Token())
		if r := b.read(t, "1"); r != before {
			t.Errorf("%s: the row was %+v and is %+v", name, before, r)
		}
		exec(
			t,
			b.pool,
			`UPDATE app.invoice SET value = $1, last_fencing_token = $2 WHERE id = '1' AND last_fencing_token <= $2`,
			name,
			int64(l.Token()),
		)
		if r := b.read(t, "1"); r.Value != name {
			t.Errorf("%s: the control was refused: the test shows nothing", name)
		}
		if err := rival.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// C08 a, b, over leases: the fence outlives the row. The control, an upsert that knows only rows, brings the deleted
// row back.
func TestCase08_AStaleUpsertCannotRaiseTheDead(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key, set := t.Context(), fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	forget := func() {
		t.Helper()
		if err := b.rdb.Del(ctx, b.leaseKey("invoice-1")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := b.acquire(t, "invoice-1", nil)
	forget()
	other := b.another(t)
	second := acquire(t, other, "invoice-1", nil)
	if err := table(t, other).Delete(ctx, second, key); err != nil {
		t.Fatal(err)
	}
	_, err := b.table.Upsert(ctx, a, key, set)
	wantStale(t, err, a.Token(), second.Token())
	wantStale(t, b.table.Insert(ctx, a, key, set), a.Token(), second.Token())
	if n := value[int](t, b.pool, `SELECT count(*) FROM app.invoice WHERE id = '1'`); n != 0 {
		t.Error("the dead has risen")
	}
	forget()
	third := b.acquire(t, "invoice-1", nil)
	if err := b.table.Insert(ctx, third, key, set); err != nil {
		t.Fatal(err)
	}
	wantStale(t, table(t, other).Update(ctx, second, key, set), second.Token(), third.Token())
	exec(t, b.pool, `DELETE FROM app.invoice WHERE id = '1'`)
	exec(t, b.pool, `INSERT INTO app.invoice AS i (id, value, last_fencing_token) VALUES ('1', 'dead', $1)
		ON CONFLICT (id) DO UPDATE SET value = 'dead' WHERE i.last_fencing_token <= $1`, int64(a.Token()))
	if r := b.read(t, "1"); r.Value != "dead" {
		t.Error("the control raised nothing: the test shows nothing")
	}
}

// A row ahead of its fence heals under every method that writes.
func TestEveryMethodHealsARowAheadOfItsFence(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ahead := 0
	for name := range every(t, b.table, nil, nil) {
		if name == "get" || name == "insert" { // nothing is compared
			continue
		}
		ahead += 1000
		exec(t, b.pool, `INSERT INTO app.invoice (id, last_fencing_token) VALUES ('1', $1)
			ON CONFLICT (id) DO UPDATE SET last_fencing_token = $1`, ahead)
		l := b.acquire(t, "invoice-1", nil)
		if int(l.Token()) >= ahead {
			t.Fatalf("token %d is not behind %d", l.Token(), ahead)
		}
		if err := every(t, b.table, l, fencepost.Key{"1"})[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if int(l.Token()) != ahead {
			t.Errorf("%s: the lease's token is %d, not %d", name, l.Token(), ahead)
		}
		exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 9223372036854775807 WHERE id = '1'`)
		if name != "delete" {
			err := every(t, b.table, l, fencepost.Key{"1"})[name]()
			if wantErr(t, err, fencepost.ErrTokenRegressed); errors.Is(err, fencepost.ErrStale) {
				t.Errorf("%s: a current holder was called stale: %v", name, err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// I9: a write that a trigger suppresses is ErrRefused, from every method, and no other outcome. The control is
// PostgreSQL's own answer: no row changed, and no error.
func TestInvariant9_Case18_ASwallowedWriteIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER swallow BEFORE INSERT OR UPDATE OR DELETE ON app.invoice FOR EACH ROW EXECUTE FUNCTION app.swallow()`)
	one, ten := b.acquire(t, "invoice-1", nil), b.acquire(t, "invoice-10", nil)
	for name, call := range every(t, b.table, one, fencepost.Key{"1"}) {
		want := map[string]error{"get": nil, "insert": fencepost.ErrExists}
		if _, special := want[name]; !special {
			want[name] = fencepost.ErrRefused
		}
		if err := call(); !errors.Is(err, want[name]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range every(t, b.table, ten, fencepost.Key{"10"}) {
		want := fencepost.ErrNotFound
		if name == "insert" || name == "upsert" {
			want = fencepost.ErrRefused
		}
		if err := call(); !errors.Is(err, want) {
			t.Errorf("%s of a missing row: %v", name, err)
		}
	}
	tag, err := b.pool.Exec(t.Context(), `UPDATE app.invoice SET value = 'x' WHERE id = '1'`)
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("the control: %v, %v", tag, err)
	}
}

// Columns that PostgreSQL alone writes are refused by name, before anything is sent.
func TestComputedColumnsAreNotWritten(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE TABLE app.computed (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer NOT NULL DEFAULT 1,
			twice integer GENERATED ALWAYS AS (n * 2) STORED, line bigint GENERATED BY DEFAULT AS IDENTITY,
			last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO app.computed DEFAULT VALUES`)
	type computed struct {
		N     int
		Twice int
	}
	c, err := fencepost.NewTable[computed](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "computed", Key: []string{"id"}, Resource: fencepost.PerRow("computed-"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, key, l := t.Context(), fencepost.Key{1}, b.acquire(t, "computed-1", nil)
	for what, err := range map[string]error{
		`"twice" of "app"."computed" is generated`: c.Update(ctx, l, key, fencepost.Set{"twice": 1}),
		`key column "id"`:                          c.Insert(ctx, l, key, fencepost.Set{"n": 1}),
		`a key cannot be given`:                    second(c.Upsert(ctx, l, key, fencepost.Set{"n": 1})),
		`column "twice"`: c.Modify(ctx, l, key, func(row *computed) error {
			row.Twice = 9
			return nil
		}),
	} {
		if wantErr(t, err, fencepost.ErrInvalid); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want it to say %q", err, what)
		}
	}
	if err := c.Update(ctx, l, key, fencepost.Set{"n": 4, "line": 9}); err != nil {
		t.Error(err)
	}
	if err := c.Modify(ctx, l, key, func(row *computed) error { row.N += row.Twice; return nil }); err != nil {
		t.Error(err)
	}
	if got, err := c.Get(ctx, l, key); err != nil || got.N != 12 || got.Twice != 24 {
		t.Errorf("the row is %+v, %v", got, err)
	}
}

// C27: hostile names through every method. A table of the same name in another schema stays unchanged.
func TestCase27_HostileNamesThroughTheStore(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for _, name := range [][4]string{
		{"My Schema", "Order.Items", "Id", "select"},
		{`x"; DROP TABLE y; --`, `ta"ble`, "stored", `c"ol`},
		{"excluded", strings.Repeat("n", 63), "$1", strings.Repeat("c", 63)},
	} {
		quoted := func(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
		decoy := "decoy " + name[0]
		for _, schema := range []string{name[0], decoy} {
			exec(t, b.pool, `CREATE SCHEMA `+quoted(schema))
			exec(t, b.pool, `CREATE TABLE `+quoted(schema, name[1])+` (`+quoted(name[2])+` text PRIMARY KEY, `+quoted(name[3])+
				` text, "Last Token" bigint NOT NULL DEFAULT 0)`)
			exec(t, b.pool, `INSERT INTO `+quoted(schema, name[1])+` VALUES ('k', 'before')`)
		}
		writeHostile(t, b, name)
		for schema, want := range map[string]string{name[0]: "put, modified", decoy: "before"} {
			if got := value[string](t, b.pool, `SELECT `+quoted(name[3])+` FROM `+quoted(schema, name[1])); got != want {
				t.Errorf("%q: the row holds %q", schema, got)
			}
		}
	}
}

// writeHostile writes the row of a table with two columns by every method.
func writeHostile(t *testing.T, b *bundle, name [4]string) {
	t.Helper()
	// The struct's tags are the names, so the type is made for them. Here the fields of all three stand side by side.
	type row struct {
		Token fencepost.Token `db:"Last Token"`
	}
	hostile, err := fencepost.NewTable[row](t.Context(), b.store, fencepost.TableSpec{
		Schema:      name[0],
		Name:        name[1],
		Key:         []string{name[2]},
		TokenColumn: "Last Token",
		Resource:    fencepost.PerRow(name[1] + ":"),
	})
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	ctx, key := t.Context(), fencepost.Key{"k"}
	l := b.acquire(t, name[1]+":k", nil)
	_, claimed := hostile.Stamp(ctx, l, key)
	got, read := hostile.Get(ctx, l, key)
	for what, err := range map[string]error{
		"claim": claimed, "get": read,
		"update":   hostile.Update(ctx, l, key, fencepost.Set{name[3]: "x"}),
		"delete":   hostile.Delete(ctx, l, key),
		"insert":   hostile.Insert(ctx, l, key, fencepost.Set{name[3]: "y"}),
		"modify":   hostile.Modify(ctx, l, key, func(*row) error { return nil }),
		"upsert":   second(hostile.Upsert(ctx, l, key, fencepost.Set{name[3]: "put"})),
		"injected": hostile.Update(ctx, l, key, fencepost.Set{name[3]: "put, modified"}),
	} {
		if err != nil {
			t.Errorf("%q, %s: %v", name, what, err)
		}
	}
	if got.Token != l.Token() {
		t.Errorf("%q: token %d in the row", name, got.Token)
	}
	err = hostile.Update(ctx, l, key, fencepost.Set{`x" = 1; DROP TABLE app.invoice; --`: 1})
	if err == nil || errors.Is(err, fencepost.ErrOutcomeUnknown) {
		t.Errorf("%q: a column that is not there: %v", name, err)
	}
	b.read(t, "1") // the table stands
}

// If a write gets an error of PostgreSQL's, the error names the table once, whichever method wrote the row.
func TestASQLErrorOfAWriteNamesItsTable(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table := table(t, b.store)
	exec(t, b.pool, `ALTER TABLE app.invoice ADD CONSTRAINT no_bad CHECK (value <> 'bad')`)
	l := b.acquire(t, "invoice-1", nil)
	row, bad := fencepost.Key{"1"}, fencepost.Set{"value": "bad"}
	for name, err := range map[string]error{
		"Update": table.Update(t.Context(), l, row, bad),
		"Upsert": second(table.Upsert(t.Context(), l, row, bad)),
		"In": b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			return table.In(tx).Update(ctx, row, bad)
		}, l),
	} {
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "23514" ||
			!strings.HasPrefix(err.Error(), `fencepost: table "app"."invoice": `) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
