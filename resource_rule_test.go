package fencepost_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// These are named types over types that pgx knows, with their own conversions to text.
type (
	code   string
	number int32
	id     uuid.UUID
	roman  int64
)

func (r roman) String() string { return strings.Repeat("I", int(r%5)+1) }

const createKeyed = `
	CREATE DOMAIN app.nr AS integer CHECK (VALUE > -2000000000);
	CREATE DOMAIN app.short AS varchar(12);
	CREATE TABLE app.keyed (
		a smallint, b integer, c bigint, d text, e varchar(30), f uuid, g app.nr NOT NULL, h app.short NOT NULL,
		last_fencing_token bigint NOT NULL DEFAULT 0, PRIMARY KEY (a, b, c, d, e, f, g, h));`

func keyedTable(t *testing.T, b *bundle, rule fencepost.ResourceRule) *fencepost.Table[struct{ A int }] {
	t.Helper()
	keyed, err := fencepost.NewTable[struct{ A int }](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "keyed", Key: []string{"a", "b", "c", "d", "e", "f", "g", "h"}, Resource: rule,
	})
	if err != nil {
		t.Fatal(err)
	}
	return keyed
}

// keyGen draws key values of every Go type that a worker may use for them.
func keyGen() *rapid.Generator[fencepost.Key] {
	text := func(most int) *rapid.Generator[string] {
		return rapid.StringOfN(
			rapid.OneOf(rapid.SampledFrom([]rune("/%2F5 %_é\u0301ÿ'\\\"")), rapid.Rune().Filter(func(r rune) bool {
				return r != 0 && r != '\uFFFD'
			})),
			0,
			most,
			-1,
		)
	}
	return rapid.Custom(func(t *rapid.T) fencepost.Key {
		small := rapid.Int16().Draw(t, "a")
		middle := rapid.Int32().Draw(t, "b")
		large := rapid.Int64().Draw(t, "c")
		u := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "f"))
		d, e, h := text(40).Draw(t, "d"), text(30).Draw(t, "e"), text(12).Draw(t, "h")
		nr := rapid.Int32Min(-1_999_999_999).Draw(t, "g")
		return fencepost.Key{
			rapid.SampledFrom([]any{small, int(small), int64(small), int8(small >> 8), fmt.Sprintf("%d", small)}).
				Draw(t, "a as"),
			rapid.SampledFrom([]any{middle, number(middle), int(middle), pgtype.Int4{Int32: middle, Valid: true}, &middle}).
				Draw(t, "b as"),
			rapid.SampledFrom([]any{
				large, int(large), roman(large), uint64(large >> 1 & (1<<62 - 1)),
				pgtype.Int8{Int64: large, Valid: true},
			}).
				Draw(t, "c as"),
			rapid.SampledFrom([]any{d, code(d), []byte(d), pgtype.Text{String: d, Valid: true}, &d}).Draw(t, "d as"),
			rapid.SampledFrom([]any{e, code(e)}).Draw(t, "e as"),
			rapid.SampledFrom([]any{
				u, [16]byte(u), id(u), &u,
				pgtype.UUID{Bytes: u, Valid: true},
				u.String(), strings.ToUpper(u.String()),
				strings.ReplaceAll(u.String(), "-", ""),
			}).Draw(t, "f as"),
			rapid.SampledFrom([]any{nr, int64(nr)}).Draw(t, "g as"),
			rapid.SampledFrom([]any{h, code(h)}).Draw(t, "h as"),
		}
	})
}

// The text that Go makes of a key equals the text that PostgreSQL makes of the row that was written with that key.
func TestARuleTellsItsColumns(t *testing.T) {
	t.Parallel()
	rule := fencepost.PerGroup("row:", "d", "h")
	rule.Columns()[0] = "x" // the rule is not the caller's to change
	for name, columns := range map[string][]string{
		"a group": rule.Columns(), "a row": fencepost.PerRow("row:").Columns(), "a table": fencepost.Constant("t").Columns(),
	} {
		if name == "a group" && !slices.Equal(columns, []string{"d", "h"}) || name != "a group" && columns != nil {
			t.Errorf("%s: %q", name, columns)
		}
	}
}

func TestGoAndPostgreSQLNameTheSameResource(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, createKeyed)
	rules := map[string]*fencepost.Table[struct{ A int }]{"row": keyedTable(t, b, fencepost.PerRow("row:"))}
	columns := map[string][]string{"row": {"a", "b", "c", "d", "e", "f", "g", "h"}, "constant": nil, "two": {"h", "d"}}
	rules["constant"] = keyedTable(t, b, fencepost.Constant("row:"))
	rules["two"] = keyedTable(t, b, fencepost.PerGroup("row:", columns["two"]...))
	for _, column := range columns["row"] {
		columns[column] = []string{column}
		rules[column] = keyedTable(t, b, fencepost.PerGroup("row:", column))
	}
	where := fence.Table{Schema: "app", Name: "keyed", Key: columns["row"]}
	rapid.Check(t, func(rt *rapid.T) {
		key := keyGen().Draw(rt, "key")
		if _, err := b.pool.Exec(t.Context(), `TRUNCATE app.keyed`); err != nil {
			rt.Fatal(err)
		}
		if _, err := b.pool.Exec(
			t.Context(),
			`INSERT INTO app.keyed VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1)`,
			key...); err != nil {
			rt.Fatal(err)
		}
		for name, keyed := range rules {
			got, err := keyed.Resource(key)
			if err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			maxima, err := pgtable.Maxima(t.Context(), b.pool, pgtable.Table(where), "row:", columns[name])
			if err != nil || len(maxima) != 1 || maxima[0].Resource != got {
				rt.Errorf("%s: Go says %q, PostgreSQL %+v, %v", name, got, maxima, err)
			}
		}
	})
}

// Different groups never get the same name, and the form is fixed, because SQL computes it too.
func TestTheFormOfAResource(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, createKeyed)
	u := uuid.MustParse("6BA7B810-9DAD-11D1-80B4-00C04FD430C8")
	key := func(d, h string) fencepost.Key { return fencepost.Key{1, 2, 3, d, "e", u, 7, h} }
	for want, got := range map[string]string{
		"x:1/2/3/d/e/6ba7b810-9dad-11d1-80b4-00c04fd430c8/7/h": resource(t,
			keyedTable(t, b, fencepost.PerRow("x:")), key("d", "h")),
		"x/a%2Fb%25/c": resource(t, keyedTable(t, b, fencepost.PerGroup("x/", "d", "h")), key("a/b%", "c")),
		"x/a/b%2Fc":    resource(t, keyedTable(t, b, fencepost.PerGroup("x/", "d", "h")), key("a", "b/c")),
		"a/b%":         resource(t, keyedTable(t, b, fencepost.PerGroup("", "d")), key("a/b%", "c")),
		"all":          resource(t, keyedTable(t, b, fencepost.Constant("all")), key("a", "b")),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func resource[T any](t *testing.T, table *fencepost.Table[T], key fencepost.Key) string {
	t.Helper()
	text, err := table.Resource(key)
	if err != nil {
		t.Error(err)
	}
	return text
}

// A value that PostgreSQL would change or reject is refused before it is sent.
func TestKeysThatHaveNoOneTextAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, createKeyed)
	keyed := keyedTable(t, b, fencepost.PerRow(""))
	good := fencepost.Key{1, 2, 3, "d", "e", uuid.New(), 7, "h"}
	var none *string
	for name, bad := range map[string]struct {
		place int
		value any
	}{
		"NULL":                   {3, nil},
		"a nil pointer":          {3, none},
		"an invalid pgtype":      {2, pgtype.Int8{}},
		"no number":              {1, "one"},
		"a number with a blank":  {1, " 1"},
		"a number out of range":  {0, int64(1) << 40},
		"int out of range":       {1, 1 << 40},
		"no uuid":                {5, "1234"},
		"a number for a text":    {3, make(chan int)},
		"blanks that would go":   {4, "e" + strings.Repeat(" ", 30)},
		"too long for a domain":  {7, "0123456789abc"},
		"too many bytes? no: 31": {4, strings.Repeat("é", 31)},
	} {
		key := append(fencepost.Key(nil), good...)
		key[bad.place] = bad.value
		if got, err := keyed.Resource(key); err == nil {
			t.Errorf("%s: resource %q", name, got)
		} else {
			wantErr(t, err, fencepost.ErrInvalid)
		}
	}
	short := append(fencepost.Key(nil), good...)
	short[4] = strings.Repeat("é", 30)
	resource(t, keyed, short)
	if _, err := keyed.Resource(good[:7]); err == nil {
		t.Error("a short key was taken")
	}
}

// The control for the rule on varchar(n): PostgreSQL itself removes the blanks, so the row is another one.
func TestControl_PostgreSQLCutsBlanksOffAKey(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `CREATE TABLE app.cut (id varchar(3) PRIMARY KEY)`)
	exec(t, b.pool, `INSERT INTO app.cut VALUES ($1)`, "abc   ")
	if got := value[string](t, b.pool, `SELECT id FROM app.cut`); got != "abc" {
		t.Errorf("the row's key is %q", got)
	}
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestRulesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE COLLATION app.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE app.odd (
			n numeric, at timestamptz, c char(4), l text COLLATE app.loose, id bigint,
			last_fencing_token bigint NOT NULL DEFAULT 0, PRIMARY KEY (n, at, c, l, id))`)
	odd := func(rule fencepost.ResourceRule) error {
		_, err := fencepost.NewTable[struct{ ID int }](t.Context(), b.store, fencepost.TableSpec{
			Schema: "app", Name: "odd", Key: []string{"n", "at", "c", "l", "id"}, Resource: rule,
		})
		return err
	}
	if err := odd(fencepost.PerGroup("g:", "id")); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		err     error
		want    error
		problem string
	}{
		{odd(fencepost.ResourceRule{}), fencepost.ErrInvalid, "needs a resource rule"},
		{odd(fencepost.Constant("")), fencepost.ErrInvalid, "needs a name"},
		{odd(fencepost.PerGroup("x")), fencepost.ErrInvalid, "needs the columns"},
		{odd(fencepost.PerGroup("x", "value")), fencepost.ErrInvalid, "not part of the key"},
		{odd(fencepost.PerGroup("x", "id", "id")), fencepost.ErrInvalid, "twice"},
		{odd(fencepost.PerRow("x")), fencepost.ErrTable, `column "n" of the resource rule is numeric`},
		{odd(fencepost.PerGroup("x", "at")), fencepost.ErrTable, "timestamp with time zone"},
		{odd(fencepost.PerGroup("x", "c")), fencepost.ErrTable, "character(4)"},
		{odd(fencepost.PerGroup("x", "l")), fencepost.ErrTable, "nondeterministic collation"},
	} {
		if wantErr(t, c.err, c.want); c.err == nil || !strings.Contains(c.err.Error(), c.problem) {
			t.Errorf("got %v, want it to say %q", c.err, c.problem)
		}
	}
}

// One row whose key has several Go types in Go: the lease is the same, and so is the row.
func TestAKeyIsOfAnyTypeThatPgxCanEncode(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `CREATE TABLE app.doc (
		tenant bigint, id uuid, at timestamptz, title text, last_fencing_token bigint NOT NULL DEFAULT 0,
		PRIMARY KEY (tenant, id, at))`)
	u := uuid.New()
	at := pgtype.Timestamptz{Time: b.read(t, "1").UpdatedAt, Valid: true}
	exec(t, b.pool, `INSERT INTO app.doc VALUES (7, $1, $2, 'first')`, u, at)
	docs, err := fencepost.NewTable[struct{ Title string }](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "doc", Key: []string{"tenant", "id", "at"}, Resource: fencepost.PerGroup("doc:", "tenant", "id"),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := b.acquire(t, "doc:7/"+u.String(), nil)
	for _, key := range []fencepost.Key{
		{7, u, at}, {roman(7), [16]byte(u), at.Time}, {"7", strings.ToUpper(u.String()), at}, {number(7), id(u), &at.Time},
	} {
		got, err := docs.Stamp(t.Context(), l, key)
		if err != nil || got.Title != "first" {
			t.Errorf("%T: %+v, %v", key[1], got, err)
		}
	}
}
