package lease_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// granter is a Manager or a Quorum.
type granter interface {
	TryAcquireAll(
		ctx context.Context, resources []string, ttl time.Duration, opts *lease.AcquireOptions,
	) ([]*lease.Lease, []error)
}

func namesTo(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "r" + strconv.Itoa(i)
	}
	return names
}

// tryAll wants each lease, and releases them when the test ends.
func tryAll(t *testing.T, g granter, resources []string, ttl time.Duration) []*lease.Lease {
	t.Helper()
	leases, errs := g.TryAcquireAll(t.Context(), resources, ttl, nil)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.ReleaseAll(context.Background(), leases) })
	return leases
}

// All requests travel together, there and back, in one call for each 128.
func TestManyLeasesTravelTogether(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	tryAll(t, b.m, []string{"teaches", "the scripts"}, time.Minute)
	for _, n := range []int{2, 128, 300} {
		pipelines, calls := hook.pipelines.Load(), hook.calls.Load()
		leases := tryAll(t, b.m, namesTo(n), time.Minute)
		for i, l := range leases {
			if l.Resource() != namesTo(n)[i] || l.Err() != nil {
				t.Fatalf("lease %d is of %q: %v", i, l.Resource(), l.Err())
			}
		}
		if err := errors.Join(lease.ReleaseAll(t.Context(), leases)...); err != nil {
			t.Error(err)
		}
		want := int32((n + 127) / 128)
		got := hook.calls.Load() - calls
		if n > 2 && got != 2*want { // the first release teaches its script
			t.Errorf("%d calls for %d leases", got, n)
		}
		if got := hook.pipelines.Load() - pipelines; want > 1 && got != 2 {
			t.Errorf("%d leases and their releases in %d pipelines", n, got)
		}
	}
}

// Each resource has its own outcome, in its place, and nothing waits.
func TestManyOutcomesStandInTheirPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.acquire(t, "held", time.Minute, &lease.AcquireOptions{Label: "another"})
	_, counter := lease.KeysOf(b.prefix, "bad")
	if err := b.rdb.Set(t.Context(), counter, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	leases, errs := b.m.TryAcquireAll(t.Context(), []string{"z", "held", "bad", "a"}, time.Minute, nil)
	var held *lease.HeldError
	if !errors.As(errs[1], &held) || held.Label != "another" || held.Resource != "held" || leases[1] != nil {
		t.Errorf("held: %v", errs[1])
	}
	if wantErr(t, errs[2], lease.ErrBadKey); leases[2] != nil {
		t.Error("a lease under a bad counter")
	}
	if errs[0] != nil || errs[3] != nil || leases[0].Resource() != "z" || leases[3].Resource() != "a" {
		t.Fatalf("granted: %v", errs)
	}
	released := lease.ReleaseAll(t.Context(), []*lease.Lease{leases[0], leases[3], leases[0]})
	if err := errors.Join(released...); err != nil || len(released) != 3 {
		t.Errorf("released: %v", released)
	}
}

func TestManyAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		resources []string
		want      error
	}{
		"twice": {[]string{"a", "b", "a"}, lease.ErrInvalid},
		"empty": {[]string{"a", ""}, lease.ErrInvalid},
		"ended": {[]string{"a", "b"}, context.Canceled},
	} {
		leases, errs := b.m.TryAcquireAll(ended, c.resources, time.Minute, nil)
		for i := range errs {
			if wantErr(t, errs[i], c.want); leases[i] != nil {
				t.Errorf("%s: a lease", name)
			}
		}
	}
	if leases, errs := b.m.TryAcquireAll(t.Context(), nil, time.Minute, nil); len(leases)+len(errs) != 0 {
		t.Error("results for no resource")
	}
	if n := hook.calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// What TryAcquireAll returned can be given back as it is: a place without a lease is passed over.
func TestReleaseAllPassesOverWhatWasNotGranted(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	tryAll(t, b.m, []string{"b"}, time.Minute)
	leases, _ := b.m.TryAcquireAll(t.Context(), []string{"a", "b", "c"}, time.Minute, nil)
	if leases[0] == nil || leases[1] != nil {
		t.Fatalf("granted: %v", leases)
	}
	if err := errors.Join(lease.ReleaseAll(t.Context(), leases)...); err != nil {
		t.Error(err)
	}
	tryAll(t, b.m, []string{"a", "c"}, time.Minute)
}

// A lease that was lost is told in its place, and stops nothing.
func TestReleaseAllTellsEachLoss(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leases := tryAll(t, b.m, []string{"a", "b", "c"}, time.Minute)
	key, _ := lease.KeysOf(b.prefix, "b")
	if err := b.rdb.Set(t.Context(), key, "00000000000000000000000000000001 9 x", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	errs := lease.ReleaseAll(t.Context(), leases)
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("released: %v", errs)
	}
	wantErr(t, errs[1], lease.ErrLost)
	wantReason(t, errs[1], lease.ReasonTaken)
	if !b.exists(t, key) {
		t.Error("another holder's lease was removed")
	}
}

// A caller that leaves before the answer holds nothing once the server answers.
func TestManyThatAreGivenUpLeaveNothing(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan []error, 1)
	go func() {
		_, errs := b.m.TryAcquireAll(ctx, []string{"hung 1", "hung 2"}, time.Minute, nil)
		ended <- errs
	}()
	<-hook.hanging
	cancel()
	for _, err := range <-ended {
		wantErr(t, err, lease.ErrUnavailable, context.Canceled)
	}
	close(hook.resume)
	eventually(t, "the leases to be removed", func() bool {
		first, _ := lease.KeysOf(b.prefix, "hung 1")
		second, _ := lease.KeysOf(b.prefix, "hung 2")
		return hook.calls.Load() >= 3 && !b.exists(t, first) && !b.exists(t, second)
	})
}

// A deadline counts from before the one request for all.
func TestManyLeasesExpireFromTheirRequest(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	go func() {
		<-hook.hanging
		<-time.After(2 * lease.MinTTL) // the answer comes after the deadline
		close(hook.resume)
	}()
	leases, errs := b.m.TryAcquireAll(t.Context(), []string{"hung 1", "hung 2"}, lease.MinTTL, nil)
	for i := range errs {
		if wantErr(t, errs[i], lease.ErrLost); leases[i] != nil {
			t.Error("a lease after its deadline")
		}
	}
}

// With a confirmation by a disk, each grant is confirmed.
func TestManyLeasesWithADurability(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	b := ownBundle(t, server, lease.Options{Durability: lease.Durability{Replicas: 1, Timeout: 50 * time.Millisecond}})
	_, errs := b.m.TryAcquireAll(t.Context(), namesTo(20), time.Minute, nil)
	for i, err := range errs {
		wantErr(t, err, lease.ErrUnavailable) // there is no replica
		if key, _ := lease.KeysOf(b.prefix, namesTo(20)[i]); b.exists(t, key) {
			t.Errorf("%s is still there", key)
		}
	}
}

func TestManyLeasesOfAQuorum(t *testing.T) {
	t.Parallel()
	r := setupCircle(t, 3, lease.QuorumOptions{})
	leases := tryAll(t, r.holder, namesTo(50), time.Minute)
	_, errs := r.contender.TryAcquireAll(t.Context(), namesTo(50), time.Minute, nil)
	for i, err := range errs {
		if wantErr(t, err, lease.ErrHeld); leases[i].Token() < 1 {
			t.Errorf("lease %d has token %d", i, leases[i].Token())
		}
	}
	if err := errors.Join(lease.ReleaseAll(t.Context(), leases)...); err != nil {
		t.Error(err)
	}
	tryAll(t, r.contender, namesTo(50), time.Minute)
}

// manyOnACluster: one request for resources on all nodes, of which two do not know the scripts.
func manyOnACluster(t *testing.T, c *services.Cluster) {
	t.Helper()
	b := setupCluster(t, c, lease.Options{})
	leases := tryAll(t, b.m, namesTo(100), time.Minute)
	_, errs := b.m.TryAcquireAll(t.Context(), namesTo(100), time.Minute, nil)
	for _, err := range errs {
		wantErr(t, err, lease.ErrHeld)
	}
	if err := errors.Join(lease.ReleaseAll(t.Context(), leases)...); err != nil {
		t.Error(err)
	}
	tryAll(t, b.m, namesTo(100), time.Minute)
	if leases, errs := b.m.TryAcquireAll(t.Context(), nil, time.Minute, nil); len(leases)+len(errs) != 0 {
		t.Error("results for no resource")
	}
}
