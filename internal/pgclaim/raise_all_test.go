package pgclaim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

func TestMain(m *testing.M) { testenv.MainOfWaiting(m, 3) }

func raiseAll(ctx context.Context, pool *pgxpool.Pool, claims ...pgclaim.Claim) (raised []pgclaim.Raised, err error) {
	err = fencetest.OnConn(ctx, pool, func(conn *pgx.Conn) (err error) {
		raised, err = pgclaim.RaiseAll(ctx, conn, claims, "many")
		return err
	})
	return raised, err
}

// one raises by itself, and returns the answer as RaiseAll does.
func one(t *testing.T, pool *pgxpool.Pool, c pgclaim.Claim) (raised pgclaim.Raised) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT claimed, current FROM fencepost.claim($1, $2, $3::text::uuid)`,
		c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&raised.Claimed, &raised.Current)
	if err != nil {
		t.Fatal(err)
	}
	return raised
}

// Every claim of a set gets the answer that it would get alone, whatever the others are.
func TestManyClaimsAreAnsweredAsEachAlone(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const step = token.Token(1) << 40
	for resource, tok := range map[string]token.Token{"below": 3, "equal": 5, "above": 9, "far": 1, "ours": 5} {
		for _, place := range []string{"alone", "together"} {
			fencetest.MustRaise(t, pool, fencetest.ClaimOf(place+resource, tok))
		}
	}
	tokens := map[string]token.Token{
		"new": 5, "newest": step, "new, far": step + 1, "below": 5, "equal": 5, "above": 5,
		"far": step + 2, "highest": token.Max,
	}
	var claims []pgclaim.Claim
	var want []pgclaim.Raised
	for resource, tok := range tokens {
		want = append(want, one(t, pool, fencetest.ClaimOf("alone"+resource, tok)))
		claims = append(claims, fencetest.ClaimOf("together"+resource, tok))
	}
	check := func(what string) {
		t.Helper()
		got, err := raiseAll(t.Context(), pool, claims...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %s: %+v together, %+v alone", what, claims[i].Resource, got[i], want[i])
			}
		}
	}
	check("first")
	check("repeated after a lost reply")
	var labelled int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.fence WHERE label = 'many'`).Scan(&labelled)
	if err != nil || labelled != 3 {
		t.Errorf("%d claims carry their label, %v", labelled, err)
	}
}

// A resource that a transaction has entered is left out, and the others are claimed: nobody waits. Once the transaction
// has ended, it is claimed as well.
func TestManyClaimsWaitForNobody(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("b", 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := pgclaim.Enter(ctx, tx, old); err != nil {
		t.Fatal(err)
	}
	claims := []pgclaim.Claim{fencetest.ClaimOf("a", 2), fencetest.ClaimOf("b", 2), fencetest.ClaimOf("c", 2)}
	raised, err := raiseAll(ctx, pool, claims...)
	if err != nil || !raised[0].Claimed || !raised[1].Busy || raised[1].Claimed || !raised[2].Claimed {
		t.Fatalf("beside a guarded transaction: %+v, %v", raised, err)
	}
	if err := pgclaim.Enter(ctx, tx, old); err != nil {
		t.Errorf("the guard did not hold: %v", err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if raised, err = raiseAll(ctx, pool, claims...); err != nil || !raised[0].Claimed ||
		!raised[1].Claimed || raised[1].Busy {
		t.Errorf("afterwards: %+v, %v", raised, err)
	}
}

// Claims that have not committed hold their resources: a guard of an older claim waits for them and is then refused.
// The control, in which they hold no gate and change nothing, is that a transaction beside them is not held.
func TestManyClaimsHoldTheirResourcesUntilTheyCommit(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := []pgclaim.Claim{
		fencetest.MustRaise(t, pool, fencetest.ClaimOf("a", 1)), fencetest.MustRaise(t, pool, fencetest.ClaimOf("b", 1)),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var b pgx.Batch
	answers := pgclaim.QueueRaiseAll(&b, []pgclaim.Claim{fencetest.ClaimOf("a", 2), fencetest.ClaimOf("new", 1)}, "")
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		t.Fatal(err)
	}
	if raised, err := answers(); err != nil || !raised[0].Claimed || !raised[1].Claimed {
		t.Fatalf("%+v, %v", raised, err)
	}
	enter := func(c pgclaim.Claim) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pgclaim.Enter(ctx, tx, c) })
	}
	if err := enter(old[1]); err != nil {
		t.Errorf("control: a resource beside them: %v", err)
	}
	for _, resource := range []string{"a", "new"} { // two sets meet without waiting
		raised, err := raiseAll(ctx, pool, fencetest.ClaimOf("b", 2), fencetest.ClaimOf(resource, 3))
		if err != nil || raised[0].Busy || !raised[1].Busy {
			t.Errorf("%s: %+v, %v", resource, raised, err)
		}
	}
	late := make(chan error, 1)
	go func() { late <- enter(old[0]) }()
	fencetest.UntilBlockedBy(t, pool, tx)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, <-late, 1, 2)
}

func TestManyClaimsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	good := fencetest.ClaimOf("a", 1)
	many := make([]pgclaim.Claim, pgclaim.MaxTogether+1)
	for i := range many {
		many[i] = fencetest.ClaimOf(fmt.Sprint("many", i), 1)
	}
	for name, claims := range map[string][]pgclaim.Claim{
		"none": nil, "no token": {good, fencetest.ClaimOf("b", 0)}, "no name": {fencetest.ClaimOf("", 1)}, "too many": many,
		"twice": {good, fencetest.ClaimOf("b", 1), good}, // PostgreSQL says so
	} {
		if _, err := raiseAll(t.Context(), pool, claims...); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			fencetest.WantErr(t, err, pgerr.ErrInvalid)
		}
	}
	for _, arguments := range []string{
		`'{}', '{}', '{}'`, `NULL, NULL, NULL`,
		`'{a}', '{1,2}', '{00000000000000000000000000000001}'`, `'{a}', '{1}', '{NULL}'`,
		`'{NULL}', '{1}', '{00000000000000000000000000000001}'`, `'{a}', '{NULL}', '{00000000000000000000000000000001}'`,
		`'{{a}}', '{1}', '{}'`,
	} {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.claim_all(`+arguments+`)`)
		if server, answered := pgerr.ServerError(err); !answered || server.Code != "ZF002" {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if raised, err := raiseAll(t.Context(), pool, many[1:]...); err != nil || !raised[len(raised)-1].Claimed {
		t.Errorf("as many as may be: %v", err)
	}
}
