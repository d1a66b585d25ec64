package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// five is a quorum of five real servers, each behind a proxy; straight bypasses the proxies.
type five struct {
	q        *lease.Quorum
	servers  []*services.Redis
	proxies  []*faults.Proxy
	straight []redis.UniversalClient
}

func setupFive(t *testing.T, opts lease.QuorumOptions) *five {
	t.Helper()
	f := &five{}
	var clients []redis.UniversalClient
	for range 5 {
		server := testenv.OwnRedis(t)
		proxy := faults.NewProxy(t, server.Addr())
		client := redis.NewClient(
			&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second},
		)
		t.Cleanup(func() { _ = client.Close() })
		f.servers, f.proxies = append(f.servers, server), append(f.proxies, proxy)
		f.straight = append(f.straight, testenv.RedisOn(t, server.URL()))
		clients = append(clients, client)
	}
	opts.Prefix = "p"
	if opts.NodeTimeout == 0 {
		opts.NodeTimeout = 5 * time.Second // the machine may have other work
	}
	q, err := lease.NewQuorum(clients, &opts)
	if err != nil {
		t.Fatal(err)
	}
	f.q = q
	return f
}

func (f *five) counter(t *testing.T, node int) string {
	t.Helper()
	return f.straight[node].Get(t.Context(), "p:{r}:token").Val()
}

func (f *five) setCounter(t *testing.T, node int, n string) {
	t.Helper()
	if err := f.straight[node].Set(t.Context(), "p:{r}:token", n, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// shares returns how many servers carry the lease.
func (f *five) shares(t *testing.T) (n int) {
	t.Helper()
	for _, rdb := range f.straight {
		n += int(rdb.Exists(t.Context(), "p:{r}:lease").Val())
	}
	return n
}

// take acquires and releases while some nodes are down, and returns the token.
func (f *five) take(t *testing.T, down ...int) token.Token {
	t.Helper()
	for _, i := range down {
		f.proxies[i].Cut()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// A share that arrives late at a server that is cut off stays for its TTL, so the TTL has to be short.
	l, err := f.q.Acquire(ctx, "r", 5*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A release ends once a majority has it; the others are not cut off before they have it too.
	eventually(t, "no share to be left", func() bool { return f.shares(t) == 0 })
	for _, i := range down {
		f.proxies[i].Heal()
	}
	return l.Token()
}

// C05: counters that drifted apart, and majorities that change.
func TestCase05_TokensOfAQuorumRiseWhicheverMajorityAnswers(t *testing.T) {
	t.Parallel()
	f := setupFive(t, lease.QuorumOptions{})
	for i, n := range []string{"10", "10", "2", "2", "2"} {
		f.setCounter(t, i, n)
	}
	last := f.take(t, 3, 4)
	if last != 11 {
		t.Errorf("token %d of A, B and C", last)
	}
	if next := f.take(t, 0, 1); next <= last {
		t.Errorf("token %d after %d", next, last)
	} else {
		last = next
	}
	for range 60 {
		down := rand.Perm(5)[:rand.IntN(3)]
		next := f.take(t, down...)
		if next <= last {
			t.Fatalf("token %d after %d with %v down", next, last, down)
		}
		last = next
	}
	eventually(t, "no share to be left", func() bool { return f.shares(t) == 0 })
}

// The control: without the write-back the next majority knows nothing of the earlier token.
func TestCase05Control_WithoutTheWriteBack(t *testing.T) {
	t.Parallel()
	f := setupFive(t, lease.QuorumOptions{})
	for i, n := range []string{"10", "10", "2", "2", "2"} {
		f.setCounter(t, i, n)
	}
	first := f.take(t, 3, 4)
	if f.counter(t, 2) != first.String() {
		t.Errorf("C's counter is at %s after token %d", f.counter(t, 2), first)
	}
	f.setCounter(t, 2, "3") // as if it had not been written back
	if next := f.take(t, 0, 1); next > first {
		t.Errorf("token %d after %d all the same: the write-back is shown by nothing", next, first)
	}
}

func TestAQuorumLivesWithAMinorityDown(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	const limit = 5 * time.Second
	f := setupFive(t, lease.QuorumOptions{NodeTimeout: limit})
	f.take(t) // scripts loaded, servers known
	f.proxies[0].Hang()
	defer f.proxies[0].Resume()
	began := time.Now()
	l, err := f.q.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond})
	if took := time.Since(began); err != nil || took >= limit {
		t.Fatalf("one hung server: %v after %v", err, took)
	}
	// A share that reaches a hung server late stays there for its TTL at most.
	_, err = f.q.TryAcquire(t.Context(), "r", ttl, nil)
	var held *lease.HeldError
	if !errors.As(err, &held) || held.TTL <= 0 || held.TTL > ttl {
		t.Errorf("got %v", err)
	}
	if err := f.straight[1].FlushAll(t.Context()).Err(); err != nil { // a second one comes back empty
		t.Fatal(err)
	}
	eventually(t, "the empty server to have its share again", func() bool {
		return f.straight[1].Exists(t.Context(), "p:{r}:lease").Val() == 1
	})
	if l.Err() != nil || f.counter(t, 1) != l.Token().String() {
		t.Errorf("lease %v, counter of the empty server %s, token %d", l.Err(), f.counter(t, 1), l.Token())
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	f.proxies[0].Resume()
	eventually(t, "no share to be left", func() bool { return f.shares(t) == 0 })
}

// A server that hangs from the first call on has not even identified itself.
func TestAServerThatHangsAtFirstCostsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	f := setupFive(t, lease.QuorumOptions{})
	var clients []redis.UniversalClient
	for _, proxy := range f.proxies { // more patient than the limit
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	q, err := lease.NewQuorum(clients, &lease.QuorumOptions{Options: lease.Options{Prefix: "p"}, NodeTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	f.proxies[0].Hang()
	defer f.proxies[0].Resume()
	for range 3 {
		began := time.Now()
		l, err := q.TryAcquire(t.Context(), "r", time.Minute, nil)
		if took := time.Since(began); err != nil || took > 3*limit { // acquire, and a machine with other work
			t.Fatalf("%v after %v", err, took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAQuorumWithoutAMajorityGrantsNothing(t *testing.T) {
	t.Parallel()
	f := setupFive(t, lease.QuorumOptions{})
	for _, i := range []int{0, 2, 4} {
		f.proxies[i].Cut()
	}
	_, err := f.q.TryAcquire(t.Context(), "r", time.Minute, nil)
	var report *lease.QuorumError
	if !errors.As(err, &report) || report.Granted != 2 || report.Need != 3 || len(report.Nodes) != 5 {
		t.Fatalf("got %v", err)
	}
	if wantErr(t, err, lease.ErrUnavailable); errors.Is(err, lease.ErrHeld) {
		t.Errorf("got %v", err)
	}
	for i, node := range report.Nodes {
		if down := slices.Contains([]int{0, 2, 4}, i); down == (node == nil) {
			t.Errorf("server %d: %v", i, node)
		}
	}
	eventually(t, "what was granted to be given back", func() bool { return f.shares(t) == 0 })
}

func TestAQuorumIsLostWithItsMajority(t *testing.T) {
	t.Parallel()
	f := setupFive(t, lease.QuorumOptions{NodeTimeout: time.Second})
	acquire := func(resource string) *lease.Lease {
		l, err := f.q.TryAcquire(
			t.Context(),
			resource,
			3*time.Second,
			&lease.AcquireOptions{RenewEvery: 200 * time.Millisecond},
		)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	gone, cut := acquire("gone"), acquire("cut")
	eventually(t, "the loss of the keys", func() bool {
		for i := range 3 { // a renewal between two of them gives the first its share again
			if err := f.straight[i].Del(t.Context(), "p:{gone}:lease").Err(); err != nil {
				t.Fatal(err)
			}
		}
		return gone.Err() != nil
	})
	wantReason(t, gone.Err(), lease.ReasonGone)
	for i := range 3 {
		f.proxies[i].Cut()
	}
	within(t, "the loss of the servers", 10*time.Second, cut.Done())
	wantReason(t, cut.Err(), lease.ReasonUnreachable)
}

func TestAServerCountsOnce(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t)
	url := testenv.RedisURL(t)
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, testenv.RedisOn(t, url))
	}
	q, err := lease.NewQuorum(clients, &lease.QuorumOptions{Options: lease.Options{Prefix: testenv.Prefix(t)}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Acquire(t.Context(), "r", time.Minute, nil)
	wantErr(t, err, lease.ErrInvalid)
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _ = ring.Close() }()
	for name, list := range map[string][]redis.UniversalClient{
		"none": nil, "one": {rdb}, "even": {rdb, clients[0], clients[1], clients[2]}, "twice": {rdb, clients[0], rdb},
		"nil": {rdb, nil, clients[0]}, "ring": {rdb, clients[0], ring},
	} {
		if _, err := lease.NewQuorum(list, nil); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Servers are killed and come back empty one after the other. Leases continue, and their tokens rise.
func TestAQuorumOutlivesServersThatComeBackEmpty(t *testing.T) {
	t.Parallel()
	f := setupFive(t, lease.QuorumOptions{})
	var last token.Token
	for i, server := range f.servers {
		if err := errors.Join(server.Kill(t.Context()), server.StartEmpty(t.Context())); err != nil {
			t.Fatal(err)
		}
		next := f.take(t)
		if next <= last {
			t.Errorf("token %d after %d, server %s restarted empty", next, last, strconv.Itoa(i))
		}
		last = next
	}
}

// A server that hangs does not cost leases that are shorter than its limit.
func TestAHungServerDoesNotCostShortLeases(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	f := setupFive(t, lease.QuorumOptions{NodeTimeout: 3 * ttl})
	f.take(t)
	l, err := f.q.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.proxies[0].Hang()
	select {
	case <-l.Done():
		t.Errorf("lost: %v", l.Err())
	case <-time.After(ttl + ttl/2): // only renewals can have kept it
	}
	f.proxies[0].Resume()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A quorum of any size tolerates a minority that is down, and grants nothing if a majority is down.
func TestAQuorumOfThreeFiveOrSeven(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, 5, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var servers []*services.Redis
			var clients []redis.UniversalClient
			for range size {
				server := testenv.OwnRedis(t)
				servers, clients = append(servers, server), append(clients, testenv.RedisOn(t, server.URL()))
			}
			q, err := lease.NewQuorum(clients, nil)
			if err != nil {
				t.Fatal(err)
			}
			for down := range size/2 + 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				l, err := q.TryAcquire(ctx, fmt.Sprint("r", down), time.Minute, nil)
				cancel()
				if granted := down <= size/2; (err == nil) != granted {
					t.Errorf("%d of %d are down: %v", down, size, err)
				}
				if l != nil {
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				} else {
					wantErr(t, err, lease.ErrUnavailable)
				}
				if err := servers[down].Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
