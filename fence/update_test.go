package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// C01 b and I9: each outcome of a bare write is a separate error, and a refused write changes no column.
func TestCase01b_Case18_TheOutcomesOfABareWrite(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	ctx := t.Context()
	if err := fencetest.Update(ctx, pool, 5, 1, "A"); err != nil {
		t.Fatal(err)
	}
	if err := fencetest.Update(ctx, pool, 9, 1, "B"); err != nil {
		t.Fatal(err)
	}
	before := fencetest.Read(t, pool, 1)
	if before.Value != "B" || before.Token != 9 {
		t.Fatalf("the row is %+v", before)
	}
	err := fencetest.Update(ctx, pool, 5, 1, "A again")
	fencetest.WantStale(t, err, 5, 9)
	var stale *fence.StaleError
	if errors.As(err, &stale) && !stale.Row {
		t.Error("the row refused, and the error says the fence did")
	}
	fencetest.WantErr(t, fencetest.Update(ctx, pool, 5, 99, "x"), fence.ErrNotFound)
	if after := fencetest.Read(t, pool, 1); after != before {
		t.Errorf("refused writes changed the row from %+v to %+v", before, after)
	}
	// The control: the plain statement reports none of this.
	for _, id := range []int{1, 99} {
		_, err := pool.Exec(ctx, `UPDATE app.item SET value = 'A again' WHERE id = $1 AND last_fencing_token < 5`, id)
		if err != nil {
			t.Errorf("the control gave %v", err)
		}
	}
}

// C06 e: a bare token is spent after one write.
func TestCase06e_ABareTokenWritesARowOnce(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	if err := fencetest.Update(t.Context(), pool, 5, 1, "first"); err != nil {
		t.Fatal(err)
	}
	err := fencetest.Update(t.Context(), pool, 5, 1, "second")
	fencetest.WantErr(t, err, fence.ErrTokenSpent)
	if errors.Is(err, fence.ErrStale) || fencetest.Read(t, pool, 1).Value != "first" {
		t.Errorf("%v, row %+v", err, fencetest.Read(t, pool, 1))
	}
	if err := fencetest.Update(t.Context(), pool, 5, 2, "another row"); err != nil {
		t.Errorf("another row: %v", err)
	}
}

// C18 c and d: the row is locked by a transaction that then commits a higher token, or a deletion.
func TestCase18_TheAnswerIsTheCommittedOneAfterAWait(t *testing.T) {
	t.Parallel()
	stale := func(err error) bool {
		var s *fence.StaleError
		return errors.As(err, &s) && s.Token == 5 && s.Current == 7
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	for name, c := range map[string]struct {
		rival string
		want  func(err error) bool
	}{
		"higher token": {`UPDATE app.item SET value = 'rival', last_fencing_token = 7 WHERE id = 1`, stale},
		"same token":   {`UPDATE app.item SET value = 'rival', last_fencing_token = 5 WHERE id = 1`, is(fence.ErrTokenSpent)},
		"deleted":      {`DELETE FROM app.item WHERE id = 1`, is(fence.ErrNotFound)},
		"lower token":  {`UPDATE app.item SET value = 'rival', last_fencing_token = 3 WHERE id = 1`, is(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := fencetest.Setup(t)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fencetest.Exec(t, tx, c.rival)
			done := make(chan error, 1)
			go func() { done <- fencetest.Update(t.Context(), pool, 5, 1, "mine") }()
			untilWaiters(t, pool, 1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !c.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// C18: a policy or a trigger suppresses the write though the token is good.
func TestARefusalOfTheDatabaseIsNeitherStaleNorMissing(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER swallow BEFORE UPDATE ON app.item FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION app.swallow()`)
	fencetest.WantErr(t, fencetest.Update(t.Context(), pool, 5, 2, "x"), fence.ErrRefused)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	fencetest.WantErr(t, fencetest.UpdateClaimed(t.Context(), pool, c, 2, "x"), fence.ErrRefused)
	if err := fencetest.Update(t.Context(), pool, 5, 1, "x"); err != nil {
		t.Error(err)
	}
}

// C06 a: under a claim the holder may write the same row again; a bare token may not.
func TestCase06a_AClaimWritesARowAgain(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for _, value := range []string{"first", "second"} {
		if err := fencetest.UpdateClaimed(t.Context(), pool, c, 1, value); err != nil {
			t.Fatal(err)
		}
	}
	if r := fencetest.Read(t, pool, 1); r.Value != "second" || r.Token != 5 {
		t.Errorf("the row is %+v", r)
	}
	fencetest.WantErr(t, fencetest.UpdateClaimed(t.Context(), pool, c, 99, "x"), fence.ErrNotFound)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 6))
	fencetest.WantStale(t, fencetest.UpdateClaimed(t.Context(), pool, c, 1, "overtaken"), 5, 6)
	if r := fencetest.Read(t, pool, 1); r.Value != "second" {
		t.Errorf("the row is %+v", r)
	}
	// A row that is ahead of its fence says so.
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 100 WHERE id = 2`)
	err := fencetest.UpdateClaimed(t.Context(), pool, fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7)), 2, "x")
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !stale.Row || stale.Current != 100 {
		t.Errorf("got %v", err)
	}
}

// C02: B claims the row before it reads; A, overtaken but not yet noticed, cannot slip in between. The
// control shows the update lost without the claim.
func TestCase02_ClaimTheRowThenRead(t *testing.T) {
	t.Parallel()
	for _, claim := range []bool{true, false} {
		pool := fencetest.Setup(t)
		fencetest.Exec(t, pool, `UPDATE app.item SET value = '100', last_fencing_token = 40 WHERE id = 1`)
		fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 41)) // A's, which A then forgets to guard with
		seen := fencetest.Read(t, pool, 1).Value
		if claim {
			seen = claimRow(t, pool, fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 42)))
		}
		err := fencetest.Update(t.Context(), pool, 41, 1, "50")
		if claim {
			fencetest.WantStale(t, err, 41, 42)
			err = fencetest.UpdateClaimed(t.Context(), pool, lastClaim(t, pool), 1, add(t, seen, 10))
		} else {
			if err != nil { // accepted: the row still carried 40
				t.Fatal(err)
			}
			err = fencetest.Update(t.Context(), pool, 42, 1, add(t, seen, 10))
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := fencetest.Read(t, pool, 1); r.Value != "110" || r.Token != 42 {
			t.Errorf("claim %v: the row is %+v", claim, r)
		}
	}
}

func claimRow(t *testing.T, pool *pgxpool.Pool, c fence.Claim) (value string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	err = pgrow.StampRow(
		t.Context(),
		conn.Conn(),
		c,
		fencetest.Rows,
		fence.Key{1},
		[]string{"value"},
		func(r pgx.Rows) error {
			value, err = pgx.CollectExactlyOneRow(r, pgx.RowTo[string])
			return err
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func lastClaim(t *testing.T, pool *pgxpool.Pool) (c fence.Claim) {
	t.Helper()
	var nonce string
	err := pool.QueryRow(t.Context(), `SELECT resource, token, replace(nonce::text, '-', '') FROM fencepost.fence`).
		Scan(&c.Resource, &c.Token, &nonce)
	if err != nil {
		t.Fatal(err)
	}
	if c.Nonce, err = token.ParseNonce(nonce); err != nil {
		t.Fatal(err)
	}
	return c
}

func add(t *testing.T, value string, n int) string {
	t.Helper()
	var v int
	if _, err := fmt.Sscan(value, &v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(v + n)
}

// The promise of the row level: whatever the order, accepted tokens rise, and the highest accepted one is the last. The
// control drops the comparison.
func TestCase19_AcceptedTokensOfARowRise(t *testing.T) {
	t.Parallel()
	for _, compare := range []bool{true, false} {
		pool := fencetest.Setup(t)
		fencetest.Exec(t, pool, `
			CREATE TABLE app.history (at bigint GENERATED ALWAYS AS IDENTITY, token bigint NOT NULL);
			CREATE FUNCTION app.record() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN INSERT INTO app.history (token) VALUES (NEW.last_fencing_token); RETURN NULL; END $$;
			CREATE TRIGGER record AFTER UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.record()`)
		var wg sync.WaitGroup
		for worker := range 50 {
			wg.Go(func() {
				for i := range 4 {
					tok := token.Token((i*50+worker*37)%200 + 1)
					if err := writeBare(t.Context(), pool, tok, compare); err != nil && !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		checkHistory(t, pool, compare)
	}
}

func writeBare(ctx context.Context, pool *pgxpool.Pool, tok token.Token, compare bool) error {
	if compare {
		return fencetest.Update(ctx, pool, tok, 1, "x")
	}
	_, err := pool.Exec(ctx, `UPDATE app.item SET value = 'x', last_fencing_token = $1 WHERE id = 1`, int64(tok))
	return err
}

// C28: extreme tokens, through every way in which pgx sends them.
func TestCase28_TokensAtTheEdges(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for _, bad := range []token.Token{0, -1} {
		fencetest.WantErr(t, fencetest.Update(t.Context(), pool, bad, 1, "x"), fence.ErrInvalid)
	}
	url := pool.Config().ConnString()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.DefaultQueryExecMode = mode
		modal, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 0`)
		for _, tok := range []token.Token{1, 1 << 31, 1<<53 + 1, token.Max} {
			if err := fencetest.Update(t.Context(), modal, tok, 1, mode.String()); err != nil {
				t.Errorf("%v, token %d: %v", mode, tok, err)
			}
			if r := fencetest.Read(t, pool, 1); r.Token != tok || r.Value != mode.String() {
				t.Errorf("%v: the row is %+v", mode, r)
			}
		}
		c := fencetest.ClaimOf("mode "+mode.String(), 1<<31)
		if err := errors.Join(
			fencetest.Raise(t.Context(), modal, c),
			guarded(t.Context(), modal, c, 2, "x"),
			fencetest.UpdateClaimed(t.Context(), modal, c, 3, "x"),
		); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 0`)
		modal.Close()
	}
}

// C07: old rows of a table migrated as the library does it accept token 1; a hand-made nullable column
// is never mistaken for a conflict.
func TestCase07_ANullTokenIsNotStale(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	if err := fencetest.Update(t.Context(), pool, 1, 3, "x"); err != nil {
		t.Errorf("an old row refused token 1: %v", err)
	}
	fencetest.Exec(t, pool, `
		CREATE TABLE app.loose (id bigint PRIMARY KEY, value text);
		INSERT INTO app.loose VALUES (1), (2), (3);
		ALTER TABLE app.loose ADD COLUMN last_fencing_token bigint;
		INSERT INTO app.loose (id) VALUES (4)`)
	loose := fence.Table{Schema: "app", Name: "loose", Key: []string{"id"}}
	for _, id := range []int{1, 4} {
		err := fence.Update(t.Context(), pool, loose, 5, fence.Key{id}, fence.Set{"value": "x"})
		if fencetest.WantErr(t, err, fence.ErrTable); errors.Is(err, fence.ErrStale) {
			t.Errorf("got %v", err)
		}
	}
	_, err := pgtable.Inspect(t.Context(), pool, pgtable.Table(loose))
	if fencetest.WantErr(
		t,
		err,
		fence.ErrTable,
	); err == nil ||
		!strings.Contains(err.Error(), `"last_fencing_token" may be NULL`) {
		t.Errorf("got %v", err)
	}
}

// A write in the caller's own transaction is the caller's to commit.
func TestUpdateInACallersTransaction(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fencetest.Update(t.Context(), tx, 5, 1, "x"); err != nil {
		t.Fatal(err)
	}
	fencetest.WantErr(t, fencetest.Update(t.Context(), tx, 5, 1, "y"), fence.ErrTokenSpent)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := fencetest.Read(t, pool, 1); r.Token != 0 {
		t.Errorf("the row is %+v", r)
	}
}

// The caller's own errors are passed on unchanged.
func TestErrorsOfTheCallersSQLPassThrough(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for name, set := range map[string]fence.Set{
		"not null": {"value": nil}, "no such column": {"nothing": 1}, "not encodable": {"value": make(chan int)},
	} {
		err := fence.Update(t.Context(), pool, rows, 5, fence.Key{1}, set)
		for _, ours := range []error{
			fence.ErrUnavailable, fence.ErrOutcomeUnknown, fence.ErrStale,
			fence.ErrNotFound, fence.ErrInvalid,
		} {
			if err == nil || errors.Is(err, ours) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		c := fencetest.MustRaise(t, pool, fencetest.ClaimOf(name, 5))
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = fencetest.UpdateOn(t.Context(), conn.Conn(), c, fencetest.Rows, fence.Key{1}, set)
		if err == nil || errors.Is(err, fence.ErrOutcomeUnknown) || errors.Is(err, fence.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
		conn.Release()
	}
}

func TestAnUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = fencetest.Update(t.Context(), pool, 5, 1, "x")
	if fencetest.WantErr(t, err, fence.ErrUnavailable); errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("nothing was sent, and yet: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = fencetest.Update(ctx, testenv.Pool(t), 5, 1, "x")
	if fencetest.WantErr(t, err, fence.ErrUnavailable, context.Canceled); errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("nothing was sent, and yet: %v", err)
	}
}
