package fence_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/token"
)

// guards enters all claims in one transaction, does the rest, and rolls back.
func guards(ctx context.Context, pool *pgxpool.Pool, claims []fence.Claim, rest func(tx pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var b pgx.Batch
	pgclaim.QueueEnterAll(&b, claims)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fence.GuardError(ctx, err)
	}
	return rest(tx)
}

// claimsOf makes n claims, of item 1 to n, the last first.
func claimsOf(t *testing.T, pool *pgxpool.Pool, n int) []fence.Claim {
	t.Helper()
	nonce := token.NewNonce()
	fencetest.Exec(
		t,
		pool,
		`SELECT count(*) FROM generate_series(1, $1::int) AS i, fencepost.claim('test:item:' || i, 5, $2::text::uuid)`,
		n,
		uuidOf(nonce),
	)
	claims := make([]fence.Claim, n)
	for i := range claims {
		claims[i] = fence.Claim{Resource: fmt.Sprint("test:item:", n-i), Token: 5, Nonce: nonce}
	}
	return claims
}

// The time per lease does not grow with the number of leases. With one call for each of 5,000 leases, each would take
// more than ten times as long.
func TestCase39_ManyLeasesAreEnteredInLinearTime(t *testing.T) {
	t.Parallel()
	pool := ownServer(t, "-c", "max_locks_per_transaction=512")
	claims := claimsOf(t, pool, 5000)
	each := map[int]time.Duration{}
	for _, n := range []int{10, 100, 1000, 5000} {
		for range 3 { // the quickest counts: this machine has other work too
			began := time.Now()
			if err := guards(t.Context(), pool, claims[:n], func(pgx.Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began) / time.Duration(n); each[n] == 0 || took < each[n] {
				each[n] = took
			}
		}
	}
	t.Logf("for each lease: %v", each)
	if each[5000] > 6*each[100] {
		t.Errorf("for each lease: %v", each)
	}
}

// Neither does the time to write a row of a protected table under one of them. With all entries in one setting, a row
// under one of 4,000 leases would take more than ten times as long as under one of 100.
func TestCase39_RowsOfManyLeasesPassAProtectionInLinearTime(t *testing.T) {
	t.Parallel()
	pool := ownServer(t, "-c", "max_locks_per_transaction=512")
	fencetest.Exec(t, pool, `TRUNCATE app.item`)
	protect(t, pool, "app.item", "item:", "id")
	claims := claimsOf(t, pool, 4000)
	each := map[int]time.Duration{}
	for _, n := range []int{100, 1000, 4000} {
		for range 3 { // the quickest counts
			var took time.Duration
			err := guards(t.Context(), pool, claims[4000-n:], func(tx pgx.Tx) error {
				began := time.Now()
				defer func() { took = time.Since(began) / time.Duration(n) }()
				_, err := tx.Exec(t.Context(), `INSERT INTO app.item (id) SELECT generate_series(1, $1::int)`, n)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if each[n] == 0 || took < each[n] {
				each[n] = took
			}
		}
	}
	t.Logf("for each row: %v", each)
	if each[4000] > 8*each[100] {
		t.Errorf("for each row: %v", each)
	}
}

// Resources that are entered with many others and resources that are entered alone can be combined. Settings left over
// in the session count for neither.
func TestCase39_ManyStandBesideFew(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	many := claimsOf(t, pool, 100)
	write := func(id int) string { return fmt.Sprintf(`UPDATE app.item SET value = 'x' WHERE id = %d`, id) }
	for _, left := range []string{``, ` "test:item:2":9:x "test:item:1":9:x`} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SELECT set_config('fencepost.entered', $1, true)`, left)
			if err := fence.Enter(t.Context(), tx, many[98]); err != nil { // of item 2
				return err
			}
			var b pgx.Batch
			pgclaim.QueueEnterAll(&b, append(many[:70:70], many[99])) // item 1 among them
			if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
				return err
			}
			fencetest.Exec(t, tx, write(1))
			fencetest.Exec(t, tx, write(2))
			return sends(t.Context(), write(3))(tx)
		})
		wantState(t, err, "ZF004")
	}
}

// Resources that are entered together open protections, as those that are entered one by one do, and both can be
// combined.
func TestCase39_WhatIsEnteredTogetherOpensProtections(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	claims := claimsOf(t, pool, 3)
	err := guards(t.Context(), pool, claims[:2], func(tx pgx.Tx) error {
		write := `UPDATE app.item SET value = 'x' WHERE id = `
		fencetest.Exec(t, tx, write+`3`)
		fencetest.Exec(t, tx, write+`2`)
		if err := fence.Enter(t.Context(), tx, claims[2]); err != nil {
			return err
		}
		fencetest.Exec(t, tx, write+`1`)
		return sends(t.Context(), write+`3`)(tx)
	})
	if err != nil {
		t.Error(err)
	}
	err = guards(t.Context(), pool, claims[:2], sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`))
	wantState(t, err, "ZF004")
}

// If one claim is stale, none is entered, and the error names it.
func TestCase39_TheStaleOneIsNamed(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	claims := claimsOf(t, pool, 3)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:2", 6))
	err := guards(t.Context(), pool, claims, func(pgx.Tx) error { t.Error("entered"); return nil })
	fencetest.WantStale(t, err, 5, 6)
	if err == nil || !strings.Contains(err.Error(), `"test:item:2"`) {
		t.Errorf("not named: %v", err)
	}
	for _, call := range []string{
		`NULL, NULL, NULL`, `'{}', '{}', '{}'`, `'{a,b}', '{5}', '{}'`,
		`'{a,NULL}', '{5,5}', ARRAY[gen_random_uuid(), gen_random_uuid()]`,
	} {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.enter_all(`+call+`)`)
		wantState(t, err, "ZF002")
	}
}

// The claims are entered in the order of their names, whatever order they come in: a caller that waits for one holds
// those before it and none after it.
func TestCase39_TheOrderIsTheSameForEverybody(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	claims := claimsOf(t, pool, 5)
	slices.SortFunc(claims, func(a, b fence.Claim) int { return strings.Compare(b.Resource[5:], a.Resource[5:]) })
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := fencetest.ClaimOf("test:item:3", 6)
	fencetest.Exec(t, holder, `SELECT fencepost.claim($1, 6, $2::text::uuid)`, next.Resource, uuidOf(next.Nonce))
	done := make(chan error, 1)
	go func() { done <- guards(t.Context(), pool, claims, func(pgx.Tx) error { return nil }) }()
	untilWaiters(t, pool, 1)
	var held int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE granted) FROM pg_locks
		WHERE locktype = 'advisory' AND mode = 'ShareLock' AND database = (SELECT oid FROM pg_database
			WHERE datname = current_database())`).Scan(&held)
	if err != nil || held != 2 {
		t.Errorf("%d held, want those of the two names before, %v", held, err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
