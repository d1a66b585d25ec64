package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

// nobody holds anything.
func nobody(_ context.Context, resources []string) ([]bool, error) {
	return make([]bool, len(resources)), nil
}

// aged has every claim look as if it had been made two hours ago.
func aged(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE FUNCTION app.age() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN NEW.claimed_at := clock_timestamp() - interval '2 hours'; RETURN NEW; END $$;
		CREATE TRIGGER age BEFORE INSERT OR UPDATE ON fencepost.fence FOR EACH ROW EXECUTE FUNCTION app.age()`)
	return pool
}

func collect(t *testing.T, pool *pgxpool.Pool, opts fence.CollectOptions) fence.Collected {
	t.Helper()
	if opts.Held == nil {
		opts.Held = nobody
	}
	if opts.OlderThan == 0 {
		opts.OlderThan = time.Hour
	}
	var done fence.Collected
	err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) (err error) {
		done, err = fence.Collect(t.Context(), conn, &opts)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return done
}

func wantCollected(t *testing.T, got, want fence.Collected) {
	t.Helper()
	if got != want {
		t.Errorf("collected %+v, want %+v", got, want)
	}
}

// I2, I3: after its fence was collected, the tokens of a resource rise on, and an earlier holder stays refused: by the
// claim, by the guard, and by the row.
func TestInvariants2and3_ACollectedFenceIsRemembered(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 4))
	last := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7))
	if err := guarded(t.Context(), pool, last, 1, "last"); err != nil {
		t.Fatal(err)
	}
	wantCollected(t, collect(t, pool, fence.CollectOptions{}), fence.Collected{Old: 1, Collected: 1})
	wantCollected(t, collect(t, pool, fence.CollectOptions{}), fence.Collected{}) // again

	for _, c := range []fence.Claim{old, last, fencetest.ClaimOf("r", 5)} {
		for name, err := range map[string]error{
			"claim": fencetest.Raise(t.Context(), pool, c),
			"guard": guarded(t.Context(), pool, c, 1, "x"),
		} {
			fencetest.WantStale(t, err, c.Token, 7)
			var stale *fence.StaleError
			if errors.As(err, &stale) && (!stale.Floor || stale.Label != "" || !stale.ClaimedAt.IsZero()) {
				t.Errorf("%s of %d: %+v", name, c.Token, stale)
			}
		}
	}
	next := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 8))
	if err := guarded(t.Context(), pool, next, 1, "next"); err != nil {
		t.Errorf("the next holder's write: %v", err)
	}
}

// The control: a fence that is only deleted lets an overtaken token claim again.
func TestInvariants2and3Control_AFenceThatIsDeleted(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7))
	fencetest.Exec(t, pool, `DELETE FROM fencepost.fence`)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 4)) // the damage
}

// Each way to make a claim heeds the floor, and goes on above it.
func TestEveryClaimHeedsTheFloor(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	for name, c := range map[string]struct{ at, above string }{
		"claim": {`SELECT claimed FROM fencepost.claim('r', 7, $1)`, `SELECT claimed FROM fencepost.claim('r', 8, $1)`},
		"claim_now": {
			`SELECT claimed FROM fencepost.claim_now('r', 7, $1)`,
			`SELECT claimed FROM fencepost.claim_now('r', 8, $1)`,
		},
		"claim_all": {
			`SELECT claimed[1] OR current[1] <> 7 FROM fencepost.claim_all('{r}', '{7}', ARRAY[$1::uuid])`,
			`SELECT claimed[1] AND claimed[2] FROM fencepost.claim_all('{r,s}', '{8,1}', ARRAY[$1::uuid, $1])`,
		},
		"claim_marked": {
			`SELECT claimed FROM fencepost.claim_marked('r', 7, $1, '', 60000)`,
			`SELECT claimed FROM fencepost.claim_marked('r', 8, $1, '', 60000)`,
		},
		"draw": {`SELECT fencepost.draw('r', $1) < 8`, `SELECT fencepost.draw('r', $1) = 9`},
		"draw_marked": {
			`SELECT coalesce(token, 8) < 8 FROM fencepost.draw_marked('r', $1, '', 42, 60000)`,
			`SELECT fencepost.draw('r', $1) > 7`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fencetest.Exec(t, pool, `DELETE FROM fencepost.fence`)
			fencetest.Exec(t, pool, `UPDATE fencepost.floor
				SET token = CASE WHEN bucket = fencepost.bucket('r') THEN 7 ELSE 0 END`)
			var below, above bool
			nonce := token.NewNonce().Hex()
			if err := pool.QueryRow(t.Context(), c.at, nonce).Scan(&below); err != nil || below {
				t.Errorf("at the floor: %v, %v", below, err)
			}
			if err := pool.QueryRow(t.Context(), c.above, token.NewNonce().Hex()).Scan(&above); err != nil || !above {
				t.Errorf("above the floor: %v, %v", above, err)
			}
		})
	}
}

// A claim is refused where the floor is not known, and nothing is claimed.
func TestAClaimWithoutAFloorIsUnavailable(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("old", 1))
	fencetest.Exec(t, pool, `DELETE FROM fencepost.floor`)
	err := fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("new", 1))
	fencetest.WantErr(t, err, fence.ErrUnavailable)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("old", 2)) // it raises, and reads no floor
	fencetest.Exec(t, pool, `SELECT fencepost.repair()`)
	// Above all that is remembered.
	fencetest.WantStale(t, fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("new", 2)), 2, 2)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("new", 3))
}

// What is held, or not old enough, or of another namespace, or above 2^62, stays.
func TestCollectLeavesWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for _, name := range []string{"a:1", "a:2", "a:3", "a:4", "b:1", "a;1", "a"} {
		fencetest.MustRaise(t, pool, fencetest.ClaimOf(name, 1))
	}
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET claimed_at = now() - interval '2 hours' WHERE resource <> 'a:3'`)
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET token = 4611686018427387905 WHERE resource = 'a:4'`)
	held := func(_ context.Context, resources []string) ([]bool, error) {
		held := make([]bool, len(resources))
		for i, r := range resources {
			held[i] = r == "a:2"
		}
		return held, nil
	}
	dry := collect(t, pool, fence.CollectOptions{Namespace: "a", Held: held, DryRun: true})
	wantCollected(t, dry, fence.Collected{Old: 2, Held: 1})
	var told fence.Collected
	tell := func(c fence.Collected) { told = c }
	done := collect(t, pool, fence.CollectOptions{Namespace: "a", Held: held, Progress: tell})
	wantCollected(t, done, fence.Collected{Old: 2, Held: 1, Collected: 1})
	wantCollected(t, told, done)
	wantCollected(t, collect(t, pool, fence.CollectOptions{Limit: 2}), fence.Collected{Old: 4, Collected: 2})
	wantCollected(t, collect(t, pool, fence.CollectOptions{}), fence.Collected{Old: 2, Collected: 2})
	var left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.fence`).Scan(&left); err != nil || left != 2 {
		t.Errorf("%d fences are left, %v; want a:3 and a:4", left, err)
	}
}

func TestCollectRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	pool := fencetest.AsRole(t, owner, "")
	role := pgx.Identifier{owner.Config().ConnConfig.Database + "_worker"}.Sanitize()
	fencetest.Exec(t, owner, `REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost FROM `+role)
	err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
		for _, o := range []*fence.CollectOptions{
			nil,
			{OlderThan: time.Hour},
			{OlderThan: time.Hour - 1, Held: nobody},
			{OlderThan: time.Hour, Held: nobody, Namespace: "a:b"},
			{OlderThan: time.Hour, Held: nobody, Limit: -1},
		} {
			_, err := fence.Collect(t.Context(), conn, o)
			fencetest.WantErr(t, err, fence.ErrInvalid)
		}
		_, err := fence.Collect(t.Context(), conn, &fence.CollectOptions{OlderThan: time.Hour, Held: nobody})
		return err
	})
	fencetest.WantErr(t, err, fence.ErrUnavailable)
	if !strings.Contains(err.Error(), "fencepost.grant_collector") {
		t.Errorf("%v", err)
	}
}

// The table stays bounded, however many resources were used once: see docs/operating.md for a million.
func TestResourcesUsedOnceLeaveABoundedTable(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const n = 20_000
	for round := range 2 {
		fencetest.Exec(t, pool, `INSERT INTO fencepost.fence (resource, token, nonce, label, claimed_at)
			SELECT format('n:%s-%s', $1::integer, i), 1 + i % 3, gen_random_uuid(), '', now() - interval '2 hours'
			  FROM generate_series(1, $2::integer) AS i`, round, n)
		wantCollected(t, collect(t, pool, fence.CollectOptions{}), fence.Collected{Old: n, Collected: n})
		var rows string
		err := pool.QueryRow(t.Context(), `SELECT format('%s %s %s', (SELECT count(*) FROM fencepost.fence), count(*),
			max(token)) FROM fencepost.floor`).Scan(&rows)
		if err != nil || rows != "0 1024 3" {
			t.Errorf("fences, buckets and highest floor: %s, %v", rows, err)
		}
	}
}

// I1, I2: whatever claims and collections do at the same time, tokens rise in commit order.
func TestInvariants1and2_ClaimsRaceCollections(t *testing.T) {
	t.Parallel()
	pool := aged(t)
	recordClaims(t, pool)
	var next atomic.Int64
	var collected, reseeds atomic.Int64
	claimants, collectors := sync.WaitGroup{}, sync.WaitGroup{}
	over := make(chan struct{})
	for range 2 {
		collectors.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					collected.Add(int64(collect(t, pool, fence.CollectOptions{}).Collected))
				}
			}
		})
	}
	for range 4 {
		claimants.Go(func() {
			for range 100 {
				tok := token.Token(max(1, next.Add(1)-rand.Int64N(4)))
				var stale *fence.StaleError
				if err := fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", tok)); errors.As(err, &stale) {
					if stale.Floor {
						reseeds.Add(1)
					}
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	claimants.Wait()
	close(over)
	collectors.Wait()
	checkHistory(t, pool, true)
	if collected.Load() == 0 {
		t.Error("nothing was collected")
	}
	t.Logf("%d collected, %d claims refused by the floor", collected.Load(), reseeds.Load())
}
