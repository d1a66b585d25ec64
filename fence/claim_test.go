package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

func TestAClaimRaisesTheFenceStrictly(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	for _, tok := range []token.Token{1, 4} {
		fencetest.WantStale(t, fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", tok)), tok, 5)
	}
	// the same number, another grant
	fencetest.WantStale(t, fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", 5)), 5, 5)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 6))
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("another", 1))
}

// If the reply to a claim was lost, making the claim once more settles it.
func TestARepeatedClaimRecognisesItself(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	fencetest.MustRaise(t, pool, c)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 6))
	fencetest.WantStale(t, fencetest.Raise(t.Context(), pool, c), 5, 6)
}

func TestOneWildNumberCannotUseUpTheRange(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const step = token.Token(1) << 40
	for _, c := range []struct{ tok, current token.Token }{{step + 1, 0}, {token.Max, 0}} {
		err := fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", c.tok))
		var jump *fence.JumpError
		if !errors.As(err, &jump) || !errors.Is(err, fence.ErrJump) || jump.Current != c.current {
			t.Errorf("token %d: %v", c.tok, err)
		}
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", step))
	fencetest.WantErr(t, fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", 2*step+1)), fence.ErrJump)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2*step))
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET token = 9223372036854775806`)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", token.Max))
}

func TestClaimsThatCannotBeAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `DROP SCHEMA fencepost CASCADE`) // anything sent would fail otherwise
	good := fencetest.ClaimOf("r", 1)
	for name, spoil := range map[string]func(*fence.Claim){
		"no resource":   func(c *fence.Claim) { c.Resource = "" },
		"long resource": func(c *fence.Claim) { c.Resource = strings.Repeat("x", fence.MaxResourceBytes+1) },
		"U+0000":        func(c *fence.Claim) { c.Resource = "a\x00b" },
		"not UTF-8":     func(c *fence.Claim) { c.Resource = "\xff" },
		"zero token":    func(c *fence.Claim) { c.Token = 0 },
		"negative":      func(c *fence.Claim) { c.Token = -1 },
		"no nonce":      func(c *fence.Claim) { c.Nonce = token.Nonce{} },
	} {
		c := good
		spoil(&c)
		if err := fencetest.Raise(t.Context(), pool, c); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: raise: %v", name, err)
		}
		if err := guarded(t.Context(), pool, c, 1, "x"); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: guard: %v", name, err)
		}
	}
	err := fencetest.Raise(t.Context(), pool, good)
	if err == nil || errors.Is(err, fence.ErrInvalid) || errors.Is(err, fence.ErrStale) {
		t.Errorf("without migrations: %v", err)
	}
}

func TestAClaimIsNotMadeInsideATransaction(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return fence.Raise(t.Context(), tx.Conn(), fencetest.ClaimOf("r", 1), nil)
	})
	fencetest.WantErr(t, err, fence.ErrInvalid)
}

func TestAClaimIsOneJSONDocument(t *testing.T) {
	t.Parallel()
	c := fencetest.ClaimOf("r", 1<<53+1)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back fence.Claim
	if err := json.Unmarshal(data, &back); err != nil || back != c {
		t.Errorf("%s came back as %+v, %v", data, back, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, c.Nonce.Hex()) {
		t.Errorf("the nonce is printed: %s", text)
	}
}

func TestAnyTextNamesAResource(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for _, resource := range []string{
		"'; DROP SCHEMA fencepost; --", `"`, `\`, "a'b", "$1", "é",
		"e\u0301", " ", "a\nb", "{}",
	} {
		c := fencetest.MustRaise(t, pool, fencetest.ClaimOf(resource, 1))
		if err := guarded(t.Context(), pool, c, 1, resource); err != nil {
			t.Errorf("%q: %v", resource, err)
		}
		c.Token++
		fencetest.WantStale(t, guarded(t.Context(), pool, c, 1, "x"), 2, 1)
	}
}

// I1 and I2: whatever the order and number of claims, each number is claimed once and the fence rises
// in commit order. The history is what the database itself recorded.
func TestInvariants1and2_ClaimsAreUniqueAndRise(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	recordClaims(t, pool)
	claimAtRandom(t, pool)
	checkHistory(t, pool, true)
}

// The control: claims that overwrite the fence without comparing.
func TestInvariants1and2Control_WithoutTheComparison(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	recordClaims(t, pool)
	fencetest.Exec(t, pool, `
		CREATE OR REPLACE FUNCTION fencepost.claim(resource text, token bigint, nonce uuid, label text DEFAULT '',
			OUT claimed boolean, OUT current bigint, OUT refusal jsonb)
		LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO fencepost.fence AS f VALUES (claim.resource, claim.token, claim.nonce, '', clock_timestamp())
			ON CONFLICT ON CONSTRAINT fence_pkey DO UPDATE SET token = excluded.token, nonce = excluded.nonce;
			claimed := true;
			current := claim.token;
		END $$`)
	claimAtRandom(t, pool)
	checkHistory(t, pool, false)
}

// recordClaims keeps every state that the fence had, in commit order: the fence's row lock is held
// from the trigger to the commit.
func recordClaims(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	fencetest.Exec(t, pool, `
		CREATE TABLE app.history (at bigint GENERATED ALWAYS AS IDENTITY, token bigint NOT NULL);
		CREATE FUNCTION app.record() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO app.history (token) VALUES (NEW.token); RETURN NULL; END $$;
		CREATE TRIGGER record AFTER INSERT OR UPDATE ON fencepost.fence FOR EACH ROW EXECUTE FUNCTION app.record()`)
}

// claimAtRandom has eight claimants use the same numbers in different orders, as they would if Redis had lost its
// counter again and again.
func claimAtRandom(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 40 {
				tok := token.Token((i*(worker*2+1))%40 + 1)
				if err := fencetest.Raise(
					t.Context(),
					pool,
					fencetest.ClaimOf("r", tok),
				); err != nil &&
					!errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func checkHistory(t *testing.T, pool *pgxpool.Pool, sound bool) {
	t.Helper()
	read, err := pool.Query(t.Context(), `SELECT token FROM app.history ORDER BY at`)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := pgx.CollectRows(read, pgx.RowTo[token.Token])
	if err != nil || len(tokens) < 2 {
		t.Fatalf("history %v, %v", tokens, err)
	}
	rising := true
	for i := 1; i < len(tokens); i++ {
		rising = rising && tokens[i] > tokens[i-1]
	}
	if rising != sound {
		t.Errorf("tokens rise strictly: %v, want %v: %v", rising, sound, tokens)
	}
}

// The claim makes itself durable, whatever the session's settings are.
func TestAClaimIsMoreDurableThanItsSession(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fencetest.Exec(t, pool, `
		CREATE TABLE app.seen (setting text);
		CREATE FUNCTION app.see() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO app.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON fencepost.fence
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.see()`)
	settings := []string{"off", "local", "remote_write", "on", "remote_apply"}
	wants := []string{"on", "on", "on", "on", "remote_apply"}
	for i, setting := range settings {
		fencetest.Exec(t, conn.Conn(), `TRUNCATE app.seen`)
		fencetest.Exec(t, conn.Conn(), `SET synchronous_commit = `+setting)
		if err := fence.Raise(t.Context(), conn.Conn(), fencetest.ClaimOf("r", token.Token(i+1)), nil); err != nil {
			t.Fatal(err)
		}
		var atCommit, after string
		if err := conn.QueryRow(t.Context(), `SELECT setting, current_setting('synchronous_commit') FROM app.seen`).
			Scan(&atCommit, &after); err != nil {
			t.Fatal(err)
		}
		if atCommit != wants[i] {
			t.Errorf("%s: the claim committed under %s", setting, atCommit)
		}
		if after != setting {
			t.Errorf("%s: the session was left at %s", setting, after)
		}
	}
}

// A claim waits for guarded transactions until its context ends. After that neither the client nor the server waits.
func TestAClaimWaitsForGuardsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := fence.Enter(t.Context(), tx, old); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = fencetest.Raise(ctx, pool, fencetest.ClaimOf("r", 2))
	if took := time.Since(began); err == nil || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if errors.Is(err, fence.ErrStale) {
		t.Errorf("a claim that waited is not stale: %v", err)
	}
	untilWaiters(t, pool, 0)
	done := make(chan error, 1)
	next := fencetest.ClaimOf("r", 3)
	go func() { done <- fencetest.Raise(t.Context(), pool, next) }()
	untilWaiters(t, pool, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the claim after the guard's commit: %v", err)
	}
	fencetest.WantStale(t, guarded(t.Context(), pool, old, 1, "x"), 1, 3)
}

// untilWaiters waits until a number of backends of the test's database wait for a lock.
func untilWaiters(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		var waiting int
		err := pool.QueryRow(
			t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
		).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting == want {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%d backends wait for a lock, want %d", waiting, want)
		default:
		}
	}
}

// If a role has a short lock_timeout, its claims still wait at the gate for as long as their context allows.
func TestAClaimIsNotCutShortByTheSessionsTimeouts(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	tx := beginGuarded(t, pool, fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1)))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fencetest.Exec(t, conn.Conn(), `SET lock_timeout = '20ms'`)
	fencetest.Exec(t, conn.Conn(), `SET statement_timeout = '20ms'`)
	done := make(chan error, 1)
	go func() { done <- fence.Raise(t.Context(), conn.Conn(), fencetest.ClaimOf("r", 2), nil) }()
	untilWaiters(t, pool, 1)
	fencetest.Exec(t, tx, `SELECT pg_sleep(0.1)`) // five times what the session's settings allow
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// In SQL a resource may have any collation. It is always compared byte by byte.
func TestTheCallersCollationDoesNotMatter(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(
		t,
		pool,
		`CREATE COLLATION app.loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`,
	)
	for i, collation := range []string{`"C"`, `"POSIX"`, `"en-x-icu"`, `app.loose`} {
		c := fencetest.ClaimOf("Résource", token.Token(i+1))
		var claimed bool
		err := pool.QueryRow(t.Context(), `SELECT claimed FROM fencepost.claim($1::text COLLATE `+collation+`, $2, $3)`,
			c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&claimed)
		if err != nil || !claimed {
			t.Errorf("%s: claimed %v, %v", collation, claimed, err)
		}
		fencetest.Exec(
			t,
			pool,
			`SELECT fencepost.enter($1::text COLLATE `+collation+`, $2, $3)`,
			c.Resource,
			int64(c.Token),
			c.Nonce.Hex(),
		)
		_, err = pool.Exec(t.Context(), `SELECT fencepost.enter($1::text COLLATE `+collation+`, $2, $3)`,
			"resource", int64(c.Token), c.Nonce.Hex())
		if err == nil {
			t.Errorf("%s: another resource was taken for this one", collation)
		}
	}
}

// If the claim's own bound ends its wait, the error is the server's, and the claim is not made. A claim that need not
// wait is not affected.
func TestAClaimWaitsNoLongerThanItsWait(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := fence.Enter(t.Context(), tx, old); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	opts := &fence.RaiseOptions{Wait: 100 * time.Millisecond}
	_, drawn := fence.Draw(t.Context(), conn.Conn(), "r", token.NewNonce(), opts)
	for name, err := range map[string]error{
		"Raise": fence.Raise(t.Context(), conn.Conn(), fencetest.ClaimOf("r", 2), opts), "Draw": drawn,
	} {
		var server *pgconn.PgError
		if fencetest.WantErr(t, err, fence.ErrUnavailable); !errors.As(err, &server) || server.Code != "57014" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := fence.Raise(t.Context(), conn.Conn(), fencetest.ClaimOf("r", 2), opts); err != nil {
		t.Errorf("the claims that were given up left something: %v", err)
	}
	negative := &fence.RaiseOptions{Wait: -1}
	fencetest.WantErr(t, fence.Raise(t.Context(), conn.Conn(), fencetest.ClaimOf("r", 3), negative), fence.ErrInvalid)
}
