package pgrow_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func exists(t *testing.T, pool *pgxpool.Pool, id int) bool {
	t.Helper()
	var there bool
	if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM app.item WHERE id = $1)`, id).
		Scan(&there); err != nil {
		t.Fatal(err)
	}
	return there
}

func TestRowsAreInsertedUpsertedModifiedAndDeletedUnderAClaim(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	if err := fencetest.InsertClaimed(ctx, pool, c, 10, "new"); err != nil {
		t.Fatal(err)
	}
	fencetest.WantErr(t, fencetest.InsertClaimed(ctx, pool, c, 10, "again"), pgerr.ErrExists)
	fencetest.WantErr(t, fencetest.InsertClaimed(ctx, pool, c, 1, "old row"), pgerr.ErrExists)
	if r := fencetest.Read(t, pool, 10); r.Value != "new" || r.Token != 5 || r.Updated.IsZero() {
		t.Errorf("the row is %+v", r)
	}
	for _, id := range []int{11, 11, 2} { // absent, written by this claim, old
		if err := fencetest.UpsertClaimed(ctx, pool, c, id, "put"); err != nil {
			t.Fatal(err)
		}
		if r := fencetest.Read(t, pool, id); r.Value != "put" || r.Token != 5 {
			t.Errorf("the row is %+v", r)
		}
	}
	if err := fencetest.ModifyClaimed(ctx, pool, c, 11, "ty"); err != nil {
		t.Fatal(err)
	}
	if r := fencetest.Read(t, pool, 11); r.Value != "putty" || r.Token != 5 {
		t.Errorf("the row is %+v", r)
	}
	fencetest.WantErr(t, fencetest.ModifyClaimed(ctx, pool, c, 99, "x"), pgerr.ErrNotFound)
	if err := fencetest.DeleteClaimed(ctx, pool, c, 11); err != nil || exists(t, pool, 11) {
		t.Error(err)
	}
	fencetest.WantErr(t, fencetest.DeleteClaimed(ctx, pool, c, 11), pgerr.ErrNotFound)
}

// A row ahead of its own fence refuses every write that compares: the stored token counts, not the proposed one.
func TestEveryClaimedWriteComparesTheStoredToken(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `UPDATE app.item SET value = 'ahead', last_fencing_token = 100 WHERE id = 1`)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7))
	for name, err := range map[string]error{
		"update": fencetest.UpdateClaimed(ctx, pool, c, 1, "x"),
		"upsert": fencetest.UpsertClaimed(ctx, pool, c, 1, "x"),
		"delete": fencetest.DeleteClaimed(ctx, pool, c, 1),
		"modify": fencetest.ModifyClaimed(ctx, pool, c, 1, "x"),
	} {
		var stale *pgerr.StaleError
		if !errors.As(err, &stale) || !stale.Row || stale.Token != 7 || stale.Current != 100 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	fencetest.WantErr(t, fencetest.InsertClaimed(ctx, pool, c, 1, "x"), pgerr.ErrExists)
	if r := fencetest.Read(t, pool, 1); r.Value != "ahead" || r.Token != 100 {
		t.Errorf("the row is %+v", r)
	}
	// The control: a statement that compares the token it proposes accepts any token.
	fencetest.Exec(t, pool, `INSERT INTO app.item (id, value, last_fencing_token) VALUES (1, 'x', 7)
		ON CONFLICT (id) DO UPDATE SET value = 'x', last_fencing_token = 7 WHERE excluded.last_fencing_token <= 7`)
	if r := fencetest.Read(t, pool, 1); r.Value != "x" {
		t.Errorf("the control changed nothing: %+v", r)
	}
}

// C08 a, b: the fence outlives the row, so an overtaken holder cannot recreate a deleted row. The control, which relies
// on the row alone, can.
func TestCase08_ADeletedRowStaysDeleted(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	ctx := t.Context()
	a := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	b := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7))
	if err := fencetest.DeleteClaimed(ctx, pool, b, 1); err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, fencetest.UpsertClaimed(ctx, pool, a, 1, "dead"), 5, 7)
	fencetest.WantStale(t, fencetest.InsertClaimed(ctx, pool, a, 1, "dead"), 5, 7)
	fencetest.WantStale(t, fencetest.DeleteClaimed(ctx, pool, a, 2), 5, 7)
	if exists(t, pool, 1) {
		t.Error("the dead has risen")
	}
	next := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 8))
	if err := fencetest.InsertClaimed(ctx, pool, next, 1, "new"); err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, fencetest.UpdateClaimed(ctx, pool, b, 1, "old"), 7, 8)
	fencetest.WantStale(t, fencetest.ModifyClaimed(ctx, pool, b, 1, "old"), 7, 8)
	if r := fencetest.Read(t, pool, 1); r.Value != "new" || r.Token != 8 {
		t.Errorf("the row is %+v", r)
	}
	fencetest.Exec(t, pool, `DELETE FROM app.item WHERE id = 1`)
	fencetest.Exec(t, pool, `INSERT INTO app.item AS i (id, value, last_fencing_token) VALUES (1, 'dead', 5)
		ON CONFLICT (id) DO UPDATE SET value = 'dead', last_fencing_token = 5 WHERE i.last_fencing_token <= 5`)
	if !exists(t, pool, 1) {
		t.Error("the control raised nothing: the test shows nothing")
	}
}

// swallow installs a trigger that lets no row change.
const swallow = `
	CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER swallow BEFORE INSERT OR UPDATE OR DELETE ON app.item FOR EACH ROW EXECUTE FUNCTION app.swallow();`

// C18: a write that a trigger swallows is refused: not nil, not stale, and not missing if the row exists.
func TestCase18_ATriggerThatSwallowsIsARefusal(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, swallow)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for name, err := range map[string]error{
		"update":      fencetest.UpdateClaimed(ctx, pool, c, 1, "x"),
		"insert":      fencetest.InsertClaimed(ctx, pool, c, 10, "x"),
		"upsert, new": fencetest.UpsertClaimed(ctx, pool, c, 10, "x"),
		"upsert, old": fencetest.UpsertClaimed(ctx, pool, c, 1, "x"),
		"delete":      fencetest.DeleteClaimed(ctx, pool, c, 1),
		"modify":      fencetest.ModifyClaimed(ctx, pool, c, 1, "x"),
	} {
		fencetest.WantOnly(t, name, err, pgerr.ErrRefused)
	}
	fencetest.WantOnly(t, "delete", fencetest.DeleteClaimed(ctx, pool, c, 99), pgerr.ErrNotFound)
	fencetest.WantOnly(t, "insert", fencetest.InsertClaimed(ctx, pool, c, 1, "x"), pgerr.ErrExists)
}

// C18: a row that a row-level policy hides from a write, or whose write it refuses, is refused. A row that it hides
// altogether is missing.
func TestCase18_APolicyIsARefusal(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	fencetest.Exec(t, owner, `
		ALTER TABLE app.item ENABLE ROW LEVEL SECURITY;
		CREATE POLICY see ON app.item FOR SELECT USING (id <> 3);
		CREATE POLICY change ON app.item FOR UPDATE USING (id = 2);
		CREATE POLICY add ON app.item FOR INSERT WITH CHECK (id < 100);
		CREATE POLICY remove ON app.item FOR DELETE USING (id = 2)`)
	pool := fencetest.AsRole(t, owner, `GRANT SELECT, INSERT, UPDATE, DELETE ON app.item`)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for name, err := range map[string]error{
		"update":                                 fencetest.UpdateClaimed(ctx, pool, c, 1, "x"),
		"modify":                                 fencetest.ModifyClaimed(ctx, pool, c, 1, "x"),
		"delete":                                 fencetest.DeleteClaimed(ctx, pool, c, 1),
		"upsert":                                 fencetest.UpsertClaimed(ctx, pool, c, 1, "x"),
		"insert":                                 fencetest.InsertClaimed(ctx, pool, c, 100, "x"),
		"insert under a key that cannot be seen": fencetest.InsertClaimed(ctx, pool, c, 3, "x"),
	} {
		fencetest.WantOnly(t, name, err, pgerr.ErrRefused)
	}
	fencetest.WantOnly(t, "hidden", fencetest.UpdateClaimed(ctx, pool, c, 3, "x"), pgerr.ErrNotFound)
	if err := errors.Join(
		fencetest.UpdateClaimed(ctx, pool, c, 2, "x"),
		fencetest.UpsertClaimed(ctx, pool, c, 2, "y"),
		fencetest.InsertClaimed(ctx, pool, c, 10, "z"),
		fencetest.ModifyClaimed(ctx, pool, c, 2, "!"),
	); err != nil {
		t.Error(err)
	}
	if r := fencetest.Read(t, owner, 2); r.Value != "y!" {
		t.Errorf("the row is %+v", r)
	}
}

// A missing privilege is a refusal that names itself; only the privileges that the call uses are needed.
func TestEachCallNeedsItsOwnPrivilegesOnly(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	pool := fencetest.AsRole(
		t,
		owner,
		`GRANT SELECT (id, value, last_fencing_token), UPDATE (value, last_fencing_token) ON app.item`,
	)
	if _, err := pgtable.Inspect(t.Context(), pool, fencetest.Rows); err != nil {
		t.Error(err)
	}
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	if err := errors.Join(
		fencetest.UpdateClaimed(ctx, pool, c, 1, "x"),
		fencetest.ModifyClaimed(ctx, pool, c, 1, "y"),
	); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"insert": fencetest.InsertClaimed(ctx, pool, c, 10, "x"),
		"upsert": fencetest.UpsertClaimed(ctx, pool, c, 1, "x"),
		"delete": fencetest.DeleteClaimed(ctx, pool, c, 1),
	} {
		fencetest.WantOnly(t, name, err, pgerr.ErrRefused)
		if server := new(pgconn.PgError); !errors.As(err, &server) || server.Code != "42501" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only a conflict on the key is an insert's own outcome; another unique constraint is the caller's business.
func TestAnotherUniqueConstraintIsPostgreSQLsOwnError(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(
		t,
		pool,
		`CREATE UNIQUE INDEX ON app.item (value) WHERE value = 'one'; UPDATE app.item SET value = 'one' WHERE id = 1`,
	)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for name, err := range map[string]error{
		"insert": fencetest.InsertClaimed(ctx, pool, c, 10, "one"),
		"upsert": fencetest.UpsertClaimed(ctx, pool, c, 10, "one"),
	} {
		if server := new(pgconn.PgError); !errors.As(err, &server) || server.Code != "23505" {
			t.Errorf("%s: %v", name, err)
		}
		fencetest.WantOnly(t, name, err, nil)
	}
}

// Partitions, identities, generated columns and domains are written as other tables are.
func TestTablesOfOtherShapes(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE DOMAIN app.name AS varchar(20) CHECK (VALUE <> '');
		CREATE DOMAIN app.fencing AS bigint NOT NULL CHECK (VALUE >= 0);
		CREATE TABLE app.parted (
			region app.name NOT NULL, id bigint GENERATED BY DEFAULT AS IDENTITY, value text NOT NULL DEFAULT '',
			size bigint GENERATED ALWAYS AS (length(value)) STORED, line bigint GENERATED ALWAYS AS IDENTITY,
			last_fencing_token app.fencing NOT NULL DEFAULT 0, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
		CREATE TABLE app.north PARTITION OF app.parted FOR VALUES IN ('north');
		CREATE TABLE app.south PARTITION OF app.parted FOR VALUES IN ('south')`)
	table := pgtable.Table{Schema: "app", Name: "parted", Key: []string{"region", "id"}}
	columns, err := pgtable.Inspect(t.Context(), pool, table)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		if c.Generated != (c.Name == "size") || c.IdentityAlways != (c.Name == "line") {
			t.Errorf("column %+v", c)
		}
	}
	if columns[0].Type != "app.name" || columns[0].BaseOID != 1043 || columns[0].Length != 20 {
		t.Errorf("column %+v", columns[0])
	}
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for _, region := range []string{"north", "south"} {
		key := pgtable.Key{region, 1}
		err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
			return errors.Join(
				pgrow.InsertClaimed(t.Context(), conn, c, table, key, pgtable.Set{"value": "one"}),
				fencetest.Second(pgrow.UpsertClaimed(t.Context(), conn, c, table, key, pgtable.Set{"value": "three"})),
				fencetest.UpdateOn(t.Context(), conn, c, table, key, pgtable.Set{"value": region}))
		})
		var value string
		var size int
		row := pool.QueryRow(t.Context(), `SELECT value, size FROM app.parted WHERE region = $1 AND id = 1`, region)
		if err := errors.Join(err, row.Scan(&value, &size)); err != nil || value != region || size != 5 {
			t.Errorf("%s: %q, %d, %v", region, value, size, err)
		}
		err = fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
			fencetest.WantErr(t, pgrow.InsertClaimed(t.Context(), conn, c, table, key, nil), pgerr.ErrExists)
			return fencetest.DeleteOn(t.Context(), conn, c, table, key)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestRoundTripsOfClaimedWrites: applied in one round trip, refused in two.
func TestRoundTripsOfClaimedWrites(t *testing.T) {
	t.Parallel()
	direct := fencetest.Setup(t)
	pool, trips := testenv.CountedPool(t, direct)
	ctx, c := t.Context(), fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 100 WHERE id = 3`)
	one := func(call func() error) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if err := call(); err != nil {
				t.Error(err)
			}
		}
	}
	no := func(want error, call func() error) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			fencetest.WantErr(t, call(), want)
		}
	}
	for _, step := range []struct {
		name string
		want int64
		do   func(t *testing.T)
	}{
		{"insert", 1, one(func() error { return fencetest.InsertClaimed(ctx, pool, c, 20, "v") })},
		{"insert, refused", 2, no(pgerr.ErrExists, func() error { return fencetest.InsertClaimed(ctx, pool, c, 1, "v") })},
		{"upsert", 1, one(func() error { return fencetest.UpsertClaimed(ctx, pool, c, 20, "v") })},
		{"upsert, refused", 2, no(pgerr.ErrStale, func() error { return fencetest.UpsertClaimed(ctx, pool, c, 3, "v") })},
		{"delete", 1, one(func() error { return fencetest.DeleteClaimed(ctx, pool, c, 20) })},
		{"delete, refused", 2, no(pgerr.ErrNotFound, func() error { return fencetest.DeleteClaimed(ctx, pool, c, 99) })},
		{"modify, with BEGIN and COMMIT", 4, one(func() error { return fencetest.ModifyClaimed(ctx, pool, c, 2, "v") })},
	} {
		step.do(t) // prepares the statements
		if step.name == "insert" {
			fencetest.Exec(t, direct, `DELETE FROM app.item WHERE id = 20`)
		}
		if step.name == "delete" {
			fencetest.Exec(t, direct, `INSERT INTO app.item (id) VALUES (20)`)
		}
		before := trips.Load()
		step.do(t)
		if got := trips.Load() - before; got != step.want {
			t.Errorf("%s: %d round trips, want %d", step.name, got, step.want)
		}
	}
}

// Invalid names and keys are refused before anything is sent.
func TestClaimedWritesRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	ctx, c := t.Context(), fencetest.ClaimOf("r", 1)
	long := pgtable.Set{string(make([]byte, 64)): 1}
	err := fencetest.OnConn(ctx, pool, func(conn *pgx.Conn) error {
		for name, err := range map[string]error{
			"insert, name":  pgrow.InsertClaimed(ctx, conn, c, fencetest.Rows, pgtable.Key{1}, long),
			"insert, key":   pgrow.InsertClaimed(ctx, conn, c, fencetest.Rows, nil, nil),
			"insert, twice": pgrow.InsertClaimed(ctx, conn, c, fencetest.Rows, pgtable.Key{1}, pgtable.Set{"id": 1}),
			"upsert, token": fencetest.Second(pgrow.UpsertClaimed(ctx, conn, c, fencetest.Rows, pgtable.Key{1},
				pgtable.Set{"last_fencing_token": 1})),
			"delete, key":      fencetest.DeleteOn(ctx, conn, c, fencetest.Rows, pgtable.Key{1, 2}),
			"delete, no claim": fencetest.DeleteOn(ctx, conn, pgclaim.Claim{}, fencetest.Rows, pgtable.Key{1}),
			"claim, column":    pgrow.StampRow(ctx, conn, c, fencetest.Rows, pgtable.Key{1}, []string{""}, nil),
		} {
			fencetest.WantOnly(t, name, err, pgerr.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
