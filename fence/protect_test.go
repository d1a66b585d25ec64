package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// protected is setup with a protection on app.item: one resource per row, test:item:<id>.
func protected(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := fencetest.Setup(t)
	protect(t, pool, "app.item", "item:", "id")
	return pool
}

func protect(t *testing.T, db fence.DB, table, prefix string, columns ...string) {
	t.Helper()
	protectMode(t, db, "enforce", table, prefix, columns...)
}

func protectMode(t *testing.T, db fence.DB, mode, table, prefix string, columns ...string) {
	t.Helper()
	fencetest.Exec(
		t,
		db,
		`SELECT fencepost.protect($1::text::regclass, 'test', $2, coalesce($3::name[], '{}'), mode => $4)`,
		table,
		prefix,
		columns,
		mode,
	)
}

// under runs fn in a transaction that has entered the claims.
func under(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error, claims ...fence.Claim) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, c := range claims {
			if err := fence.Enter(ctx, tx, c); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// sends returns a function that runs one statement.
func sends(ctx context.Context, sql string, args ...any) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
}

// byHand makes the setting that enter makes in a transaction, without enter. Its user has every right.
func byHand(t *testing.T, tx pgx.Tx, c fence.Claim) (setting string) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `SELECT fencepost.entered_text($1::text, $2::bigint, $3::uuid)`, c.Resource,
		int64(c.Token), uuidOf(c.Nonce)).
		Scan(&setting)
	if err != nil {
		t.Fatal(err)
	}
	return setting
}

// entersByHand does what enter does, except for its guard.
func entersByHand(t *testing.T, tx pgx.Tx, c fence.Claim) {
	t.Helper()
	fencetest.Exec(t, tx, `SELECT set_config('fencepost.entered', $1, true)`, byHand(t, tx, c))
}

func uuidOf(n token.Nonce) string {
	hex := n.Hex()
	return strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
}

func sqlState(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

func wantState(t *testing.T, err error, want string) {
	t.Helper()
	if got := sqlState(err); got != want {
		t.Errorf("got SQLSTATE %q, want %s: %v", got, want, err)
	}
}

// content is all of app.item, to be compared.
func content(t *testing.T, db fence.DB) string {
	t.Helper()
	var all string
	err := db.QueryRow(t.Context(), `SELECT coalesce(string_agg(i::text, ' ' ORDER BY id), '') FROM app.item AS i`).
		Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// These are the ways in which a program without claims writes.
var unaware = map[string]func(context.Context, pgx.Tx) error{
	"UPDATE":         statement(`UPDATE app.item SET value = 'x' WHERE id = 1`),
	"UPDATE of many": statement(`UPDATE app.item SET value = 'x'`),
	"lowered token":  statement(`UPDATE app.item SET last_fencing_token = 0 WHERE id = 1`),
	"raised token": statement(
		`UPDATE app.item SET value = 'x', last_fencing_token = 99 WHERE id = 1 AND last_fencing_token < 99`,
	),
	"DELETE":               statement(`DELETE FROM app.item WHERE id = 1`),
	"INSERT":               statement(`INSERT INTO app.item (id) VALUES (9)`),
	"upsert of a new row":  statement(`INSERT INTO app.item (id) VALUES (9) ON CONFLICT (id) DO UPDATE SET value = 'x'`),
	"upsert of an old row": statement(`INSERT INTO app.item (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET value = 'x'`),
	"CTE": statement(
		`WITH gone AS (DELETE FROM app.item WHERE id = 1 RETURNING id) INSERT INTO app.item SELECT id + 10 FROM gone`,
	),
	"MERGE": statement(`MERGE INTO app.item AS i USING (VALUES (1), (9)) AS n (id) ON i.id = n.id
		WHEN MATCHED THEN UPDATE SET value = 'x' WHEN NOT MATCHED THEN INSERT (id) VALUES (n.id)`),
	"TRUNCATE": statement(`TRUNCATE app.item`),
	"COPY": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(
			ctx,
			pgx.Identifier{"app", "item"},
			[]string{"id", "value"},
			pgx.CopyFromRows([][]any{{int64(9), "x"}}),
		)
		return err
	},
}

func statement(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error { return sends(ctx, sql)(tx) }
}

// A protected table refuses every writer that has not entered the row's resource. The control is the same write to the
// same table before it is protected.
func TestCase19_NoWriterPassesWithoutAClaim(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 5`)
	before := content(t, pool)
	control := func(name string, write func(context.Context, pgx.Tx) error) {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if err := write(t.Context(), tx); err != nil {
			t.Fatalf("control: %s: %v", name, err)
		}
		if content(t, tx) == before {
			t.Errorf("control: %s changed nothing", name)
		}
	}
	ways := make(map[string]func(context.Context, pgx.Tx) error)
	var version int
	if err := pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	for name, write := range unaware {
		if name == "MERGE" && version < 150000 {
			continue // a syntax error there
		}
		ways[name] = write
		control(name, write)
	}
	protect(t, pool, "app.item", "item:", "id")
	for name, write := range ways {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return write(t.Context(), tx) })
		wantState(t, err, "ZF004")
		mapped := fence.GuardError(t.Context(), err)
		fencetest.WantErr(t, mapped, fence.ErrStale)
		var refused *fence.NotEnteredError
		if !errors.As(mapped, &refused) || refused.Table != "app.item" {
			t.Errorf("%s: %v", name, mapped)
		}
	}
	if after := content(t, pool); after != before {
		t.Errorf("the table changed from %s to %s", before, after)
	}
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.item')`)
	control("UPDATE, unprotected again", unaware["UPDATE"])
}

// With the claims of all its rows' resources, every way of writing is open, save TRUNCATE.
func TestEveryWriteIsOpenToAClaim(t *testing.T) {
	t.Parallel()
	for name, write := range unaware {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := protected(t)
			var claims []fence.Claim
			for _, id := range []int{1, 2, 3, 9, 11} {
				claims = append(claims, fencetest.MustRaise(t, pool, fencetest.ClaimOf(fmt.Sprintf("test:item:%d", id), 7)))
			}
			before := content(t, pool)
			err := under(t.Context(), pool, func(tx pgx.Tx) error { return write(t.Context(), tx) }, claims...)
			if name == "TRUNCATE" {
				wantState(t, err, "ZF004")
				return
			}
			if sqlState(err) == "42601" && name == "MERGE" {
				return // a server that does not know it
			}
			if err != nil || content(t, pool) == before && name != "lowered token" {
				t.Fatalf("%v, %s", err, content(t, pool))
			}
			var others int
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app.item WHERE last_fencing_token NOT IN (0, 7)`).
				Scan(&others); err != nil {
				t.Fatal(err)
			}
			if others != 0 {
				t.Errorf("%d rows were stamped otherwise: %s", others, content(t, pool))
			}
		})
	}
}

// Only the fence, read under lock, opens the protection. The setting only says where to look.
func TestTheSettingAloneOpensNothing(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 5))
	other := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:2", 5))
	forged := fencetest.ClaimOf(c.Resource, 5)       // a token read off a row, and any nonce
	proof := func(tx pgx.Tx, c fence.Claim) string { // the last of the entry's parts
		entry := byHand(t, tx, c)
		return entry[strings.LastIndex(entry, ":")+1:]
	}
	text := func(setting string) func(pgx.Tx) string { return func(pgx.Tx) string { return setting } }
	entryOf := func(c fence.Claim) func(pgx.Tx) string {
		return func(tx pgx.Tx) string { return byHand(t, tx, c) }
	}
	for name, step := range map[string]struct {
		setting func(tx pgx.Tx) string
		want    string
	}{
		"another's claim": {entryOf(other), "ZF004"},
		"forged nonce":    {entryOf(forged), "ZF001"},
		"higher token":    {entryOf(fence.Claim{Resource: c.Resource, Token: 6, Nonce: c.Nonce}), "ZF001"},
		"lower token":     {entryOf(fence.Claim{Resource: c.Resource, Token: 4, Nonce: c.Nonce}), "ZF001"},
		"another's nonce": {entryOf(fence.Claim{Resource: c.Resource, Token: 5, Nonce: other.Nonce}), "ZF001"},
		"no entry":        {text(`rubbish`), "ZF004"},
		"half an entry":   {text(` "test:item:1":`), "ZF004"},
		"no proof":        {text(` "test:item:1":5`), "ZF001"},
		"an empty proof":  {text(` "test:item:1":5:`), "ZF001"},
		"no number":       {text(` "test:item:1":five:x`), "ZF004"},
		"a wild number":   {text(` "test:item:1":99999999999999999999:x`), "ZF004"},
		"no space":        {func(tx pgx.Tx) string { return strings.TrimSpace(byHand(t, tx, c)) }, "ZF004"},
		"a name within":   {func(tx pgx.Tx) string { return ` "x \"test:item:1\":5:` + proof(tx, c) + `":5:x` }, "ZF004"},
		"cut short":       {func(tx pgx.Tx) string { e := byHand(t, tx, c); return e[:len(e)-1] }, "ZF001"},
		"a longer name":   {entryOf(fence.Claim{Resource: "x test:item:1", Token: 5, Nonce: c.Nonce}), "ZF004"},
		"the nonce":       {text(` "test:item:1":5:` + uuidOf(c.Nonce)), "ZF001"},
		"proof elsewhere": {func(tx pgx.Tx) string { return ` "test:item:1":5:x "y":5:` + proof(tx, c) }, "ZF001"},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SELECT set_config('fencepost.entered', $1, true)`, step.setting(tx))
			return sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)(tx)
		})
		if got := sqlState(err); got != step.want {
			t.Errorf("%s: SQLSTATE %q, want %s: %v", name, got, step.want, err)
		}
	}
	if got := fencetest.Read(t, pool, 1); got.Value != "" || got.Token != 0 {
		t.Errorf("the row is %+v", got)
	}
}

// A claim that was put there by hand instead of by enter is valid: a caller that has it could have called enter. The
// trigger then takes the lock that enter would have taken.
func TestAClaimSetByHandIsHeldByTheTriggersOwnLock(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 5))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	entersByHand(t, tx, c)
	fencetest.Exec(t, tx, `UPDATE app.item SET value = 'by hand' WHERE id = 1`)
	next := make(chan error, 1)
	go func() { next <- fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("test:item:1", 6)) }()
	fencetest.UntilBlockedBy(t, pool, tx)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	if got := fencetest.Read(t, pool, 1); got.Value != "by hand" || got.Token != 5 {
		t.Errorf("the row is %+v", got)
	}
}

// Names that look like parts of the setting's own text are not confused with them.
func TestResourcesWithHostileNamesAreToldApart(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(t, pool, `CREATE SCHEMA app;
		CREATE TABLE app.item (id text PRIMARY KEY, value text, last_fencing_token bigint NOT NULL DEFAULT 0)`)
	protect(t, pool, "app.item", "", "id")
	names := []string{
		`\`,
		`a"\`,
		`"`,
		`a, "\`,
		` "test:x": ["5", `,
		`": ["`,
		`{`,
		`}`,
		"tab\tline\n\x01",
		"é ü 'x'",
		`a`,
		`A`,
		`a `,
		"%25",
		"%",
		"a/b",
		"$1",
	}
	claims := make([]fence.Claim, len(names))
	for i, name := range names {
		claims[i] = fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:"+name, token.Token(i+1)))
	}
	err := under(t.Context(), pool, func(tx pgx.Tx) error {
		for _, name := range names {
			if err := sends(t.Context(), `INSERT INTO app.item (id) VALUES ($1)`, name)(tx); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
		return nil
	}, claims...)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var stamped token.Token
		if err := pool.QueryRow(t.Context(), `SELECT last_fencing_token FROM app.item WHERE id = $1`, name).
			Scan(&stamped); err != nil {
			t.Fatal(err)
		}
		if stamped != token.Token(i+1) {
			t.Errorf("%q was stamped %d, want %d", name, stamped, i+1)
		}
		for j, other := range names {
			if i == j {
				continue
			}
			err := under(
				t.Context(),
				pool,
				sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = $1`, other),
				claims[i],
			)
			if sqlState(err) != "ZF004" {
				t.Errorf("a claim of %q against %q: %v", name, other, err)
			}
		}
	}
}

// enter refuses an overtaken holder. If its old claim is put into the setting by hand, the trigger refuses it.
func TestCase01_TheProtectionRefusesAnOvertakenClaim(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	a := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 1))
	write := func(value string) func(tx pgx.Tx) error {
		return sends(t.Context(), `UPDATE app.item SET value = $1 WHERE id = 1`, value)
	}
	if err := under(t.Context(), pool, write("A"), a); err != nil {
		t.Fatal(err)
	}
	b := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 2))
	before := fencetest.Read(t, pool, 1)
	fencetest.WantStale(t, under(t.Context(), pool, write("A again"), a), 1, 2)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		entersByHand(t, tx, a)
		return write("A again")(tx)
	})
	fencetest.WantStale(t, fence.GuardError(t.Context(), err), 1, 2)
	if after := fencetest.Read(t, pool, 1); after != before {
		t.Errorf("the row changed from %+v to %+v", before, after)
	}
	if err := under(t.Context(), pool, write("B"), b); err != nil || fencetest.Read(t, pool, 1).Value != "B" {
		t.Errorf("the new holder: %v", err)
	}
}

// The rollback of a savepoint also undoes the claims that were entered inside it. The control releases the savepoint.
func TestEnterInASavepointEndsWithItsRollback(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 1))
	for end, want := range map[string]string{"ROLLBACK TO s": "ZF004", "RELEASE s": ""} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SAVEPOINT s`)
			if err := fence.Enter(t.Context(), tx, c); err != nil {
				return err
			}
			fencetest.Exec(t, tx, end)
			return sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)(tx)
		})
		if got := sqlState(err); got != want {
			t.Errorf("%s: %v", end, err)
		}
	}
}

// The trigger stamps the claim's token, whatever value the writer sets.
func TestTheProtectionStampsTheToken(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	one, nine := fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:1", 4),
	), fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:9", 6),
	)
	for sql, want := range map[string]token.Token{
		`UPDATE app.item SET value = 'x' WHERE id = 1`:                                                4,
		`UPDATE app.item SET last_fencing_token = 0 WHERE id = 1`:                                     4,
		`UPDATE app.item SET last_fencing_token = 77 WHERE id = 1`:                                    4,
		`INSERT INTO app.item (id, last_fencing_token) VALUES (9, 77)`:                                6,
		`INSERT INTO app.item (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET last_fencing_token = 77`: 4,
	} {
		err := under(t.Context(), pool, sends(t.Context(), sql), one, nine)
		id := 1
		if want == 6 {
			id = 9
		}
		if got := fencetest.Read(t, pool, id).Token; err != nil || got != want {
			t.Errorf("%s: token %d, want %d, %v", sql, got, want, err)
		}
	}
}

// A row ahead of its fence is refused, and the error says that the row is ahead. Raising the fence to the row's token
// heals that.
func TestARowAheadOfItsFence(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 50 WHERE id = 1`)
	protect(t, pool, "app.item", "item:", "id")
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 5))
	for _, sql := range []string{`UPDATE app.item SET value = 'x' WHERE id = 1`, `DELETE FROM app.item WHERE id = 1`} {
		err := fence.GuardError(t.Context(), under(t.Context(), pool, sends(t.Context(), sql), c))
		fencetest.WantStale(t, err, 5, 50)
		var stale *fence.StaleError
		if !errors.As(err, &stale) || !stale.Row || stale.Resource != c.Resource {
			t.Errorf("%s: %+v", sql, stale)
		}
	}
	c.Token = 50
	fencetest.MustRaise(t, pool, c)
	if err := under(t.Context(), pool, sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`), c); err != nil {
		t.Errorf("after the lift: %v", err)
	}
}

// Moving a row to another resource needs the claims of both, and the row's token does not fall.
func TestARowThatMovesNeedsBothClaims(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	from, to := fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:1", 8),
	), fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:9", 5),
	)
	move := sends(t.Context(), `UPDATE app.item SET id = 9 WHERE id = 1`)
	wantState(t, under(t.Context(), pool, move, from), "ZF004")
	wantState(t, under(t.Context(), pool, move, to), "ZF004")
	if err := under(
		t.Context(),
		pool,
		sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`),
		from,
	); err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, fence.GuardError(t.Context(), under(t.Context(), pool, move, from, to)), 5, 8)
	to.Token = 9
	fencetest.MustRaise(t, pool, to)
	if err := under(t.Context(), pool, move, from, to); err != nil || fencetest.Read(t, pool, 9).Token != 9 {
		t.Errorf("with both: %v", err)
	}
}

// C19 under load: fifty goroutines claim random tokens and write. The row ends at the highest token accepted, and the
// accepted ones never fall.
func TestCase19_AcceptedTokensNeverFallBehindTheProtection(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(t, pool, `CREATE TABLE app.history (place bigserial, token bigint);
		CREATE FUNCTION app.remember() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO app.history (token) VALUES (NEW.last_fencing_token); RETURN NULL; END $$;
		CREATE TRIGGER remember AFTER UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.remember()`)
	var wg sync.WaitGroup
	for worker := range 50 {
		wg.Go(func() {
			c := fencetest.ClaimOf("test:item:1", token.Token(1+(worker*37)%50))
			err := fencetest.Raise(t.Context(), pool, c)
			if err == nil {
				err = under(
					t.Context(),
					pool,
					sends(t.Context(), `UPDATE app.item SET value = $1 WHERE id = 1`, fmt.Sprint(c.Token)),
					c,
				)
			}
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var highest, falls, writes int64
	err := pool.QueryRow(t.Context(), `SELECT max(token), count(*), count(*) FILTER (WHERE token < before)
		FROM (SELECT token, lag(token) OVER (ORDER BY place) AS before
			FROM app.history) AS h`).Scan(&highest, &writes, &falls)
	if err != nil {
		t.Fatal(err)
	}
	if got := fencetest.Read(
		t,
		pool,
		1,
	); falls != 0 || writes == 0 || got.Token != token.Token(highest) ||
		got.Value != fmt.Sprint(highest) {
		t.Errorf("%d writes, %d falls, highest %d, row %+v", writes, falls, highest, got)
	}
}
