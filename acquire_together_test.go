package fencepost_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// scriptTrips counts the round trips of scripts to Redis, alone or in pipelines.
type scriptTrips struct{ atomic.Int64 }

func (h *scriptTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count(cmd)
		return next(ctx, cmd)
	}
}

func (h *scriptTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count(cmds[0])
		return next(ctx, cmds)
	}
}

func (h *scriptTrips) count(cmd redis.Cmder) {
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		h.Add(1)
	}
}

// A hundred free leases cost one round trip to Redis and one to PostgreSQL, and one more to release them.
func TestRoundTripsOfAcquireAll(t *testing.T) {
	t.Parallel()
	rdb, inRedis := testenv.Redis(t), &scriptTrips{}
	rdb.AddHook(inRedis)
	b := setupOn(t, testenv.Pool(t), rdb, fencepost.Options{})
	pool, inPostgres := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	names := manyNames(100)
	for i, fenced := range []string{"prepares", "new fences", "raised fences"} {
		if i == 1 {
			exec(t, b.pool, `DELETE FROM fencepost.fence`)
		}
		fromRedis, fromPostgres := inRedis.Load(), inPostgres.Load()
		leases, err := store.AcquireAll(t.Context(), names, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, m := inRedis.Load()-fromRedis, inPostgres.Load()-fromPostgres; i > 0 && (n != 1 || m != 1) {
			t.Errorf("%s: %d round trips to Redis and %d to PostgreSQL, want 1 and 1", fenced, n, m)
		}
		if err := store.Tx(t.Context(), setValue(fenced), leases...); err != nil {
			t.Error(err)
		}
		fromRedis = inRedis.Load()
		if err := fencepost.ReleaseAll(t.Context(), leases...); err != nil {
			t.Error(err)
		}
		if n := inRedis.Load() - fromRedis; i > 0 && n != 1 {
			t.Errorf("%s: %d round trips to release, want 1", fenced, n)
		}
	}
}

// A caller that waits for a lease holds only the leases before it; those after it stay free for others. If it kept
// them, two callers could wait for each other's leases for ever.
func TestAcquireAllHoldsNothingBehindTheLeaseItWaitsFor(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	holder := acquire(t, b.another(t), "m", nil)
	got := make(chan []*fencepost.Lease, 1)
	go func() {
		leases, err := b.store.AcquireAll(t.Context(), []string{"z", "y", "m", "b", "a"}, nil)
		if err != nil {
			t.Error(err)
		}
		got <- leases
	}()
	eventually(t, "it waits for m", func() bool {
		waiting, err := b.rdb.Exists(t.Context(), "fencepost:"+b.opts.Namespace+":{m}:queue").Result()
		return err == nil && waiting == 1
	})
	for _, resource := range []string{"y", "z"} {
		l, err := b.another(t).TryAcquire(t.Context(), resource, nil)
		if err != nil {
			t.Fatalf("%q: %v", resource, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, resource := range []string{"a", "b"} {
		_, err := b.another(t).TryAcquire(t.Context(), resource, nil)
		wantErr(t, err, fencepost.ErrHeld)
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := <-got
	if !slices.Equal(names(leases), []string{"a", "b", "m", "y", "z"}) {
		t.Errorf("acquired %q", names(leases))
	}
	if err := b.store.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
	releaseAll(t, leases)
}

// If Redis has lost the counters of all resources, each token is lifted above its own fence.
func TestAcquireAllLiftsEachTokenAboveItsFence(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	resources := []string{"a", "b", "c", "d"}
	for i, resource := range resources[:3] {
		exec(t, b.pool, `SELECT fencepost.claim($1, $2, gen_random_uuid())`, b.opts.Namespace+":"+resource, 10*(i+1))
	}
	leases := acquireAll(t, b.store, resources...)
	for i, want := range []fencepost.Token{11, 21, 31, 1} {
		if leases[i].Token() != want {
			t.Errorf("%q has token %d, want %d", resources[i], leases[i].Token(), want)
		}
	}
	c.want(t, 3, 0)
	if err := b.store.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
}

// If the earlier holder of one resource is still at work, the claim waits for at most ClaimWait. After that nothing is
// held.
func TestAcquireAllWaitsForAGuardedTransactionOfOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	claim := fencepost.Claim{Resource: b.opts.Namespace + ":b", Token: 1, Nonce: token.Nonce{1}}
	exec(t, b.pool, `SELECT fencepost.claim($1, 1, $2::text::uuid)`, claim.Resource, claim.Nonce.Hex())
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT fencepost.enter($1, 1, $2::text::uuid)`, claim.Resource, claim.Nonce.Hex())
	if err != nil {
		t.Fatal(err)
	}
	resources := []string{"a", "b", "c"}
	_, err = b.store.AcquireAll(t.Context(), resources, &fencepost.AcquireOptions{ClaimWait: 50 * time.Millisecond})
	var busy *fencepost.FenceBusyError
	if !errors.As(err, &busy) || busy.Resource != "b" || !errors.Is(err, fencepost.ErrHeld) {
		t.Errorf("got %v", err)
	}
	for _, resource := range resources {
		if !b.free(t, resource) {
			t.Errorf("%q is still held", resource)
		}
	}
	got := make(chan []*fencepost.Lease, 1)
	go func() {
		leases, err := b.store.AcquireAll(t.Context(), resources, nil)
		if err != nil {
			t.Error(err)
		}
		got <- leases
	}()
	until(t, b.pool, claimWaits)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := <-got
	if err := b.store.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
	releaseAll(t, leases)
}

// claimWaits reports whether a claim waits for a guarded transaction.
const claimWaits = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`

// Advisory locks have no common request, so their leases are acquired one after the other.
func TestAcquireAllWithoutRedis(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	store, err := fencepost.NewAdvisory(b.pool, &fencepost.Options{Namespace: b.opts.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	leases := acquireAll(t, store, "b", "a")
	if !slices.Equal(names(leases), []string{"a", "b"}) {
		t.Errorf("acquired %q", names(leases))
	}
	if err := fencepost.ReleaseAll(t.Context(), leases...); err != nil {
		t.Error(err)
	}
}

// If the reply to the claims is lost, they are made again and recognised as already made.
func TestALostReplyToManyClaimsHealsItself(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	store, proxy := behindProxy(t, b)
	for _, l := range acquireAll(t, store, "a", "b") { // prepares its statements
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dropped := proxy.DropNextReply(func(request []byte) bool { return len(request) > 0 })
	leases, err := store.AcquireAll(t.Context(), []string{"a", "b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-dropped
	if err := store.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
	releaseAll(t, leases)
}
