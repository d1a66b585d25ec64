package fence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// sibling is a resource of the same bucket as "r".
func sibling(t *testing.T, pool *pgxpool.Pool) (name string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT 'r' || i FROM generate_series(1, 100000) AS i
		WHERE fencepost.bucket('r' || i) = fencepost.bucket('r') LIMIT 1`).Scan(&name)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func beginAt(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

const (
	claimSQL   = `SELECT claimed FROM fencepost.claim($1, $2, $3)`
	collectSQL = `SELECT format('%s %s', collected, busy) FROM fencepost.collect(fencepost.bucket('r'), '{r}', '1 hour')`
)

// wantCollect runs collect on "r", and compares its answer.
func wantCollect(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, want string,
) {
	t.Helper()
	var got string
	if err := db.QueryRow(t.Context(), collectSQL).Scan(&got); err != nil || got != want {
		t.Errorf("collected and busy: %s, %v; want %s", got, err, want)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Collect, claim, collect's commit: claims of the bucket that create a fence wait, and then see the floor.
func TestInterleaving_AClaimThatCreatesWaitsForACollection(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	other := sibling(t, pool)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	tx := beginAt(t, pool, pgx.ReadCommitted)
	wantCollect(t, tx, "1 f")
	answers := map[string]chan error{"r": make(chan error, 1), other: make(chan error, 1)}
	for name, answer := range answers {
		go func() { answer <- fencetest.Raise(t.Context(), pool, fencetest.ClaimOf(name, 5)) }()
	}
	untilWaiters(t, pool, 2)
	commit(t, tx)
	for _, answer := range answers {
		fencetest.WantStale(t, <-answer, 5, 5)
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 6))
}

// Claim, collect, claim's commit: a collection does not wait for a claim that creates a fence of the bucket. It waits
// for no claim that raises one.
func TestInterleaving_ACollectionWaitsForNobody(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	other := sibling(t, pool)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	tx := beginAt(t, pool, pgx.ReadCommitted)
	fencetest.Exec(t, tx, claimSQL, other, 1, fencetest.ClaimOf(other, 1).Nonce.Hex())
	wantCollect(t, pool, "0 t")
	commit(t, tx)

	tx = beginAt(t, pool, pgx.ReadCommitted)
	fencetest.Exec(t, tx, claimSQL, other, 2, fencetest.ClaimOf(other, 2).Nonce.Hex())
	wantCollect(t, pool, "1 f") // it raised, and did not touch the bucket
}

// I3: a fence under which a transaction is open is left. It is the gate and the row's lock that say so.
func TestInterleaving_ACollectionLeavesWhatAGuardHolds(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	tx := beginAt(t, pool, pgx.ReadCommitted)
	if err := fence.Enter(t.Context(), tx, c); err != nil {
		t.Fatal(err)
	}
	wantCollect(t, pool, "0 f")
	commit(t, tx)
	tx = beginAt(t, pool, pgx.ReadCommitted)
	fencetest.Exec(t, tx, `SELECT FROM fencepost.fence FOR SHARE`) // without the gate
	wantCollect(t, pool, "0 f")
	commit(t, tx)
	wantCollect(t, pool, "1 f")
}

// Snapshot, claim of 5, collection, claim of 3: under an older snapshot there is neither fence nor floor to be seen.
// The claim is a transaction to be run again.
func TestInterleaving_AClaimUnderASnapshotFromBeforeACollection(t *testing.T) {
	t.Parallel()
	claimUnderOldSnapshot(t, fencetest.Setup, "40001", 0)
}

// The control is the naive floor: a claim that reads it without a lock is accepted below a token that was claimed.
func TestInterleavingControl_ANaiveFloor(t *testing.T) {
	t.Parallel()
	claimUnderOldSnapshot(t, func(t *testing.T) *pgxpool.Pool {
		t.Helper()
		pool := fencetest.Setup(t)
		fencetest.Exec(t, pool, `DO $$ BEGIN EXECUTE replace(pg_get_functiondef(
			'fencepost.claim(text, bigint, uuid, text)'::regprocedure), 'FOR SHARE', ''); END $$`)
		return pool
	}, "", 3)
}

func claimUnderOldSnapshot(t *testing.T, setup func(*testing.T) *pgxpool.Pool, state string, fenceAt int) {
	t.Helper()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			pool := setup(t)
			tx := beginAt(t, pool, level)
			fencetest.Exec(t, tx, `SELECT count(*) FROM app.item`)
			fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
			fencetest.Exec(t, pool, `UPDATE fencepost.fence SET claimed_at = now() - interval '2 hours'`)
			wantCollect(t, pool, "1 f")
			_, err := tx.Exec(t.Context(), claimSQL, "r", 3, fencetest.ClaimOf("r", 3).Nonce.Hex())
			if err == nil {
				err = tx.Commit(t.Context())
			}
			wantState(t, err, state)
			var at int
			err = pool.QueryRow(t.Context(), `SELECT coalesce(max(token), 0) FROM fencepost.fence`).Scan(&at)
			if err != nil || at != fenceAt {
				t.Errorf("the fence is at %d, want %d: %v", at, fenceAt, err)
			}
		})
	}
}

// The control for READ COMMITTED: a naive floor, read before the claim looks for its fence. The claim stops in between
// at a lock of the test's.
func TestInterleavingControl_AFloorThatIsReadFirst(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	fencetest.Exec(t, pool, `
		CREATE FUNCTION app.naive(resource text, token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
		DECLARE lowest bigint;
		BEGIN
			SELECT b.token INTO lowest FROM fencepost.floor AS b WHERE b.bucket = fencepost.bucket(naive.resource);
			PERFORM pg_advisory_xact_lock(42);
			UPDATE fencepost.fence AS f SET token = naive.token WHERE f.resource = naive.resource AND f.token < naive.token;
			IF FOUND OR naive.token <= lowest THEN
				RETURN FOUND;
			END IF;
			INSERT INTO fencepost.fence VALUES (naive.resource, naive.token, gen_random_uuid(), '', now())
				ON CONFLICT DO NOTHING;
			RETURN FOUND;
		END $$`)
	stop := beginAt(t, pool, pgx.ReadCommitted)
	fencetest.Exec(t, stop, `SELECT pg_advisory_xact_lock(42)`)
	claimed := make(chan error, 1)
	var accepted bool
	go func() {
		claimed <- pool.QueryRow(t.Context(), `SELECT app.naive('r', 3)`).Scan(&accepted)
	}()
	untilWaiters(t, pool, 1)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	wantCollect(t, pool, "1 f")
	commit(t, stop)
	if err := <-claimed; err != nil || !accepted {
		t.Errorf("accepted %v, %v: 3 after 5 is the damage that this shows", accepted, err)
	}
}
