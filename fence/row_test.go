package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// onConn runs a call on a connection of the pool.
func onConn(ctx context.Context, pool *pgxpool.Pool, fn func(conn *pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(conn.Conn())
}

func insertClaimed(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int, value string) error {
	return onConn(ctx, pool, func(conn *pgx.Conn) error {
		return fence.InsertClaimed(ctx, conn, c, rows, fence.Key{id}, fence.Set{"value": value})
	})
}

func upsertClaimed(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int, value string) error {
	return onConn(ctx, pool, func(conn *pgx.Conn) error {
		return fence.UpsertClaimed(ctx, conn, c, rows, fence.Key{id}, fence.Set{"value": value})
	})
}

func deleteClaimed(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int) error {
	return onConn(ctx, pool, func(conn *pgx.Conn) error {
		return fence.DeleteClaimed(ctx, conn, c, rows, fence.Key{id})
	})
}

// modifyClaimed appends to the value of a row, in a transaction of its own.
func modifyClaimed(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int, more string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var value string
		return fence.ModifyRow(ctx, tx, c, rows, fence.Key{id}, []string{"value"}, func(r pgx.Rows) error {
			for r.Next() {
				if err := r.Scan(&value); err != nil {
					return err
				}
			}
			return r.Err()
		}, func() (fence.Set, error) { return fence.Set{"value": value + more}, nil })
	})
}

func exists(t *testing.T, pool *pgxpool.Pool, id int) bool {
	t.Helper()
	var there bool
	if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM app.item WHERE id = $1)`, id).Scan(&there); err != nil {
		t.Fatal(err)
	}
	return there
}

func TestRowsAreInsertedUpsertedModifiedAndDeletedUnderAClaim(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	if err := insertClaimed(ctx, pool, c, 10, "new"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, insertClaimed(ctx, pool, c, 10, "again"), fence.ErrExists)
	wantErr(t, insertClaimed(ctx, pool, c, 1, "old row"), fence.ErrExists)
	if r := read(t, pool, 10); r.Value != "new" || r.Token != 5 || r.Updated.IsZero() {
		t.Errorf("the row is %+v", r)
	}
	for _, id := range []int{11, 11, 2} { // absent, written by this claim, old
		if err := upsertClaimed(ctx, pool, c, id, "put"); err != nil {
			t.Fatal(err)
		}
		if r := read(t, pool, id); r.Value != "put" || r.Token != 5 {
			t.Errorf("the row is %+v", r)
		}
	}
	if err := modifyClaimed(ctx, pool, c, 11, "ty"); err != nil {
		t.Fatal(err)
	}
	if r := read(t, pool, 11); r.Value != "putty" || r.Token != 5 {
		t.Errorf("the row is %+v", r)
	}
	wantErr(t, modifyClaimed(ctx, pool, c, 99, "x"), fence.ErrNotFound)
	if err := deleteClaimed(ctx, pool, c, 11); err != nil || exists(t, pool, 11) {
		t.Error(err)
	}
	wantErr(t, deleteClaimed(ctx, pool, c, 11), fence.ErrNotFound)
}

// A row ahead of its own fence says so to every write that compares: the stored token counts, not the proposed one.
func TestEveryClaimedWriteComparesTheStoredToken(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	exec(t, pool, `UPDATE app.item SET value = 'ahead', last_fencing_token = 100 WHERE id = 1`)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 7))
	for name, err := range map[string]error{
		"update": updateClaimed(ctx, pool, c, 1, "x"),
		"upsert": upsertClaimed(ctx, pool, c, 1, "x"),
		"delete": deleteClaimed(ctx, pool, c, 1),
		"modify": modifyClaimed(ctx, pool, c, 1, "x"),
	} {
		var stale *fence.StaleError
		if !errors.As(err, &stale) || !stale.Row || stale.Token != 7 || stale.Current != 100 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	wantErr(t, insertClaimed(ctx, pool, c, 1, "x"), fence.ErrExists)
	if r := read(t, pool, 1); r.Value != "ahead" || r.Token != 100 {
		t.Errorf("the row is %+v", r)
	}
	// The control: a statement that compares the token it proposes accepts what it wants.
	exec(t, pool, `INSERT INTO app.item (id, value, last_fencing_token) VALUES (1, 'x', 7)
		ON CONFLICT (id) DO UPDATE SET value = 'x', last_fencing_token = 7 WHERE excluded.last_fencing_token <= 7`)
	if r := read(t, pool, 1); r.Value != "x" {
		t.Errorf("the control changed nothing: %+v", r)
	}
}

// C08 a, b: the fence outlives the row, so an overtaken holder cannot raise the dead. The control, which goes by the row
// alone, does.
func TestCase08_ADeletedRowStaysDeleted(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	ctx := t.Context()
	a := mustRaise(t, pool, claimOf("r", 5))
	b := mustRaise(t, pool, claimOf("r", 7))
	if err := deleteClaimed(ctx, pool, b, 1); err != nil {
		t.Fatal(err)
	}
	wantStale(t, upsertClaimed(ctx, pool, a, 1, "dead"), 5, 7)
	wantStale(t, insertClaimed(ctx, pool, a, 1, "dead"), 5, 7)
	wantStale(t, deleteClaimed(ctx, pool, a, 2), 5, 7)
	if exists(t, pool, 1) {
		t.Error("the dead has risen")
	}
	next := mustRaise(t, pool, claimOf("r", 8))
	if err := insertClaimed(ctx, pool, next, 1, "new"); err != nil {
		t.Fatal(err)
	}
	wantStale(t, updateClaimed(ctx, pool, b, 1, "old"), 7, 8)
	wantStale(t, modifyClaimed(ctx, pool, b, 1, "old"), 7, 8)
	if r := read(t, pool, 1); r.Value != "new" || r.Token != 8 {
		t.Errorf("the row is %+v", r)
	}
	exec(t, pool, `DELETE FROM app.item WHERE id = 1`)
	exec(t, pool, `INSERT INTO app.item AS i (id, value, last_fencing_token) VALUES (1, 'dead', 5)
		ON CONFLICT (id) DO UPDATE SET value = 'dead', last_fencing_token = 5 WHERE i.last_fencing_token <= 5`)
	if !exists(t, pool, 1) {
		t.Error("the control raised nothing: the test shows nothing")
	}
}

// swallow installs a trigger that lets no row change.
const swallow = `
	CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER swallow BEFORE INSERT OR UPDATE OR DELETE ON app.item FOR EACH ROW EXECUTE FUNCTION app.swallow();`

// C18: what a trigger swallows is refused: not nil, not stale, and not missing where the row is there.
func TestCase18_ATriggerThatSwallowsIsARefusal(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	exec(t, pool, swallow)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	for name, err := range map[string]error{
		"update":      updateClaimed(ctx, pool, c, 1, "x"),
		"insert":      insertClaimed(ctx, pool, c, 10, "x"),
		"upsert, new": upsertClaimed(ctx, pool, c, 10, "x"),
		"upsert, old": upsertClaimed(ctx, pool, c, 1, "x"),
		"delete":      deleteClaimed(ctx, pool, c, 1),
		"modify":      modifyClaimed(ctx, pool, c, 1, "x"),
	} {
		wantOnly(t, name, err, fence.ErrRefused)
	}
	wantOnly(t, "delete", deleteClaimed(ctx, pool, c, 99), fence.ErrNotFound)
	wantOnly(t, "insert", insertClaimed(ctx, pool, c, 1, "x"), fence.ErrExists)
}

// wantOnly demands one outcome, and none besides.
func wantOnly(t *testing.T, name string, err, want error) {
	t.Helper()
	for _, outcome := range []error{
		fence.ErrInvalid, fence.ErrUnavailable, fence.ErrStale, fence.ErrTokenSpent, fence.ErrNotFound, fence.ErrExists,
		fence.ErrRefused, fence.ErrOutcomeUnknown, fence.ErrJump, fence.ErrTable,
	} {
		if errors.Is(err, outcome) != (outcome == want) { //nolint:errorlint // which of the sentinels it is
			t.Errorf("%s: got %v, want %v alone", name, err, want)
		}
	}
}

// asRole gives a pool of a role without rights of its own, to which grants have given some.
func asRole(t *testing.T, pool *pgxpool.Pool, grants string) *pgxpool.Pool {
	t.Helper()
	name := pool.Config().ConnConfig.Database + "_worker" // unique to the test
	role := pgx.Identifier{name}.Sanitize()
	exec(t, pool, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	exec(t, pool, `GRANT USAGE ON SCHEMA fencepost, app TO `+role)
	exec(t, pool, `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost TO `+role)
	if grants != "" {
		exec(t, pool, grants+` TO `+role)
	}
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION `+role)
		return err
	}
	worker, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	return worker
}

// C18: what a row-level policy hides from a write, or refuses outright, is a refusal; what it hides altogether is missing.
func TestCase18_APolicyIsARefusal(t *testing.T) {
	t.Parallel()
	owner := setup(t)
	exec(t, owner, `
		ALTER TABLE app.item ENABLE ROW LEVEL SECURITY;
		CREATE POLICY see ON app.item FOR SELECT USING (id <> 3);
		CREATE POLICY change ON app.item FOR UPDATE USING (id = 2);
		CREATE POLICY add ON app.item FOR INSERT WITH CHECK (id < 100);
		CREATE POLICY remove ON app.item FOR DELETE USING (id = 2)`)
	pool := asRole(t, owner, `GRANT SELECT, INSERT, UPDATE, DELETE ON app.item`)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	for name, err := range map[string]error{
		"update":                                 updateClaimed(ctx, pool, c, 1, "x"),
		"modify":                                 modifyClaimed(ctx, pool, c, 1, "x"),
		"delete":                                 deleteClaimed(ctx, pool, c, 1),
		"upsert":                                 upsertClaimed(ctx, pool, c, 1, "x"),
		"insert":                                 insertClaimed(ctx, pool, c, 100, "x"),
		"insert under a key that cannot be seen": insertClaimed(ctx, pool, c, 3, "x"),
	} {
		wantOnly(t, name, err, fence.ErrRefused)
	}
	wantOnly(t, "hidden", updateClaimed(ctx, pool, c, 3, "x"), fence.ErrNotFound)
	if err := errors.Join(updateClaimed(ctx, pool, c, 2, "x"), upsertClaimed(ctx, pool, c, 2, "y"), insertClaimed(ctx, pool, c, 10, "z"),
		modifyClaimed(ctx, pool, c, 2, "!")); err != nil {
		t.Error(err)
	}
	if r := read(t, owner, 2); r.Value != "y!" {
		t.Errorf("the row is %+v", r)
	}
}

// A missing privilege is a refusal that names itself, and needs only what the call does.
func TestEachCallNeedsItsOwnPrivilegesOnly(t *testing.T) {
	t.Parallel()
	owner := setup(t)
	pool := asRole(t, owner, `GRANT SELECT (id, value, last_fencing_token), UPDATE (value, last_fencing_token) ON app.item`)
	if _, err := fence.Inspect(t.Context(), pool, rows); err != nil {
		t.Error(err)
	}
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	if err := errors.Join(updateClaimed(ctx, pool, c, 1, "x"), modifyClaimed(ctx, pool, c, 1, "y")); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"insert": insertClaimed(ctx, pool, c, 10, "x"),
		"upsert": upsertClaimed(ctx, pool, c, 1, "x"),
		"delete": deleteClaimed(ctx, pool, c, 1),
	} {
		wantOnly(t, name, err, fence.ErrRefused)
		if server := new(pgconn.PgError); !errors.As(err, &server) || server.Code != "42501" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An insert's own outcome is the key's: another unique constraint is the caller's business.
func TestAnotherUniqueConstraintIsPostgreSQLsOwnError(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	exec(t, pool, `CREATE UNIQUE INDEX ON app.item (value) WHERE value = 'one'; UPDATE app.item SET value = 'one' WHERE id = 1`)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	for name, err := range map[string]error{
		"insert": insertClaimed(ctx, pool, c, 10, "one"), "upsert": upsertClaimed(ctx, pool, c, 10, "one"),
	} {
		if server := new(pgconn.PgError); !errors.As(err, &server) || server.Code != "23505" {
			t.Errorf("%s: %v", name, err)
		}
		wantOnly(t, name, err, nil)
	}
}

// Partitions, identities, generated columns and domains are written as other tables are.
func TestTablesOfOtherShapes(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	exec(t, pool, `
		CREATE DOMAIN app.name AS varchar(20) CHECK (VALUE <> '');
		CREATE DOMAIN app.fencing AS bigint NOT NULL CHECK (VALUE >= 0);
		CREATE TABLE app.parted (
			region app.name NOT NULL, id bigint GENERATED BY DEFAULT AS IDENTITY, value text NOT NULL DEFAULT '',
			size bigint GENERATED ALWAYS AS (length(value)) STORED, line bigint GENERATED ALWAYS AS IDENTITY,
			last_fencing_token app.fencing NOT NULL DEFAULT 0, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
		CREATE TABLE app.north PARTITION OF app.parted FOR VALUES IN ('north');
		CREATE TABLE app.south PARTITION OF app.parted FOR VALUES IN ('south')`)
	table := fence.Table{Schema: "app", Name: "parted", Key: []string{"region", "id"}}
	columns, err := fence.Inspect(t.Context(), pool, table)
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
	c := mustRaise(t, pool, claimOf("r", 5))
	for _, region := range []string{"north", "south"} {
		key := fence.Key{region, 1}
		err := onConn(t.Context(), pool, func(conn *pgx.Conn) error {
			return errors.Join(
				fence.InsertClaimed(t.Context(), conn, c, table, key, fence.Set{"value": "one"}),
				fence.UpsertClaimed(t.Context(), conn, c, table, key, fence.Set{"value": "three"}),
				fence.UpdateClaimed(t.Context(), conn, c, table, key, fence.Set{"value": region}))
		})
		var value string
		var size int
		row := pool.QueryRow(t.Context(), `SELECT value, size FROM app.parted WHERE region = $1 AND id = 1`, region)
		if err := errors.Join(err, row.Scan(&value, &size)); err != nil || value != region || size != 5 {
			t.Errorf("%s: %q, %d, %v", region, value, size, err)
		}
		err = onConn(t.Context(), pool, func(conn *pgx.Conn) error {
			wantErr(t, fence.InsertClaimed(t.Context(), conn, c, table, key, nil), fence.ErrExists)
			return fence.DeleteClaimed(t.Context(), conn, c, table, key)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestRoundTripsOfClaimedWrites: applied in one round trip, refused in two.
func TestRoundTripsOfClaimedWrites(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	pool, trips := testenv.CountedPool(t, direct)
	ctx, c := t.Context(), mustRaise(t, pool, claimOf("r", 5))
	exec(t, pool, `UPDATE app.item SET last_fencing_token = 100 WHERE id = 3`)
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
			wantErr(t, call(), want)
		}
	}
	for _, step := range []struct {
		name string
		want int64
		do   func(t *testing.T)
	}{
		{"insert", 1, one(func() error { return insertClaimed(ctx, pool, c, 20, "v") })},
		{"insert, refused", 2, no(fence.ErrExists, func() error { return insertClaimed(ctx, pool, c, 1, "v") })},
		{"upsert", 1, one(func() error { return upsertClaimed(ctx, pool, c, 20, "v") })},
		{"upsert, refused", 2, no(fence.ErrStale, func() error { return upsertClaimed(ctx, pool, c, 3, "v") })},
		{"delete", 1, one(func() error { return deleteClaimed(ctx, pool, c, 20) })},
		{"delete, refused", 2, no(fence.ErrNotFound, func() error { return deleteClaimed(ctx, pool, c, 99) })},
		{"modify, with BEGIN and COMMIT", 4, one(func() error { return modifyClaimed(ctx, pool, c, 2, "v") })},
	} {
		step.do(t) // prepares the statements
		if step.name == "insert" {
			exec(t, direct, `DELETE FROM app.item WHERE id = 20`)
		}
		if step.name == "delete" {
			exec(t, direct, `INSERT INTO app.item (id) VALUES (20)`)
		}
		before := trips.Load()
		step.do(t)
		if got := trips.Load() - before; got != step.want {
			t.Errorf("%s: %d round trips, want %d", step.name, got, step.want)
		}
	}
}

// Names and keys that cannot be are refused before anything is sent.
func TestClaimedWritesRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	ctx, c := t.Context(), claimOf("r", 1)
	long := fence.Set{string(make([]byte, 64)): 1}
	err := onConn(ctx, pool, func(conn *pgx.Conn) error {
		for name, err := range map[string]error{
			"insert, name":     fence.InsertClaimed(ctx, conn, c, rows, fence.Key{1}, long),
			"insert, key":      fence.InsertClaimed(ctx, conn, c, rows, nil, nil),
			"insert, twice":    fence.InsertClaimed(ctx, conn, c, rows, fence.Key{1}, fence.Set{"id": 1}),
			"upsert, token":    fence.UpsertClaimed(ctx, conn, c, rows, fence.Key{1}, fence.Set{"last_fencing_token": 1}),
			"delete, key":      fence.DeleteClaimed(ctx, conn, c, rows, fence.Key{1, 2}),
			"delete, no claim": fence.DeleteClaimed(ctx, conn, fence.Claim{}, rows, fence.Key{1}),
			"claim, column":    fence.ClaimRow(ctx, conn, c, rows, fence.Key{1}, []string{""}, nil),
		} {
			wantOnly(t, name, err, fence.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
