package lease_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// circle is a quorum of real servers, each behind a proxy, and a second client of the quorum that bypasses the proxies.
type circle struct {
	holder, contender *lease.Quorum
	servers           []*services.Redis
	proxies           []*faults.Proxy
	straight          []redis.UniversalClient
}

func setupCircle(t *testing.T, size int, opts lease.QuorumOptions) *circle {
	t.Helper()
	r := &circle{}
	var through []redis.UniversalClient
	for range size {
		server := testenv.OwnRedis(t)
		proxy := faults.NewProxy(t, server.Addr())
		client := redis.NewClient(
			&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 20 * time.Second},
		)
		t.Cleanup(func() { _ = client.Close() })
		r.servers, r.proxies = append(r.servers, server), append(r.proxies, proxy)
		through, r.straight = append(through, client), append(r.straight, testenv.RedisOn(t, server.URL()))
	}
	opts.Prefix = "p"
	if opts.NodeTimeout == 0 {
		opts.NodeTimeout = 10 * time.Second // the machine may have other work
	}
	r.holder, r.contender = newQuorum(t, through, opts), newQuorum(t, r.straight, opts)
	r.warm(t)
	return r
}

// warm makes the scripts known to all servers. A grant needs a majority only: the last server may still lack the script
// afterwards, and a proxy that holds its next reply would hold the one that says so, before anything is granted there.
func (r *circle) warm(t *testing.T) {
	t.Helper()
	eventually(t, "a grant of every server", func() bool {
		release(t, try(t, r.holder, "warm", time.Minute, nil))
		granted := 0
		for _, rdb := range r.straight {
			granted += int(rdb.Exists(t.Context(), "p:{warm}:token").Val())
		}
		return granted == len(r.straight)
	})
}

func newQuorum(t *testing.T, clients []redis.UniversalClient, opts lease.QuorumOptions) *lease.Quorum {
	t.Helper()
	q, err := lease.NewQuorum(clients, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func try(t *testing.T, q *lease.Quorum, resource string, ttl time.Duration, opts *lease.AcquireOptions) *lease.Lease {
	t.Helper()
	l, err := q.TryAcquire(t.Context(), resource, ttl, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, l *lease.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// shares returns how many servers carry the lease of a resource.
func (r *circle) shares(t *testing.T, resource string) (n int) {
	t.Helper()
	for _, rdb := range r.straight {
		n += int(rdb.Exists(t.Context(), "p:{"+resource+"}:lease").Val())
	}
	return n
}

// C55: the holder has the grants of A and B, and C's reply is late. A renewal is confirmed by B and C and counted, and
// A's share expires. Whenever C's first reply comes, C's share belongs to the lease. The control is the same without a
// late reply.
func TestCase55_ALateReplyTakesNoShareBackThatCounts(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			r := setupCircle(t, 3, lease.QuorumOptions{})
			held, letGo := closed(), func() {}
			if late {
				held, letGo = r.proxies[2].HoldNextReply(faults.Containing("p:{r}:lease"))
			}
			l := try(t, r.holder, "r", ttl, &lease.AcquireOptions{NoRenewal: true})
			within(t, "C's grant", 5*time.Second, held)
			r.proxies[0].Cut() // from the holder alone
			eventually(t, "the half of A's time to be over", func() bool { return l.Remaining() < ttl/2 })
			if err := l.Renew(t.Context(), ttl); err != nil {
				t.Fatal(err)
			}
			letGo()
			contend(t, r, l)
			if _, err := r.contender.Acquire(t.Context(), "r", ttl, nil); err != nil {
				t.Errorf("the contender, once the lease has run out: %v", err)
			}
		})
	}
}

// contend makes the contender try for as long as the lease is held: it must never be granted.
func contend(t *testing.T, r *circle, l *lease.Lease) {
	t.Helper()
	for l.Err() == nil {
		second, err := r.contender.TryAcquire(t.Context(), "r", time.Minute, nil)
		if err == nil {
			if left := l.Remaining(); left > 0 {
				t.Errorf("two holders: the first believes in its lease for another %v", left)
			}
			release(t, second)
			return
		}
		if !errors.Is(err, lease.ErrHeld) {
			t.Errorf("the contender: %v", err)
		}
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// C56: a server that is farther away than the others keeps its share, so that the lease survives the loss of a near
// one.
func TestCase56_ASlowerServerKeepsItsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size  int
		slow  []int
		delay time.Duration
	}{
		{3, []int{2}, time.Millisecond},
		{3, []int{2}, 10 * time.Millisecond},
		{3, []int{2}, 50 * time.Millisecond},
		{3, []int{2}, 200 * time.Millisecond},
		{5, []int{3, 4}, 10 * time.Millisecond},
		{5, []int{3, 4}, 200 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d servers, %v", c.size, c.delay), func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			r := setupCircle(t, c.size, lease.QuorumOptions{NodeTimeout: time.Second})
			for _, i := range c.slow {
				r.proxies[i].Latency(c.delay)
			}
			l := try(t, r.holder, "r", ttl, &lease.AcquireOptions{RenewEvery: 300 * time.Millisecond})
			eventually(t, "all shares", func() bool {
				have, of := l.Shares()
				return have == of && r.shares(t, "r") == c.size
			})
			for range 5 { // and they stay
				renewed := renewedSince(l)
				eventually(t, "a renewal", renewed)
				if n := r.shares(t, "r"); n != c.size {
					t.Errorf("%d shares of %d", n, c.size)
				}
			}
			for i := range c.slow { // as many of the near ones as there are of the slow
				if err := r.servers[i].Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-l.Done():
				t.Errorf("lost with a minority down: %v", l.Err())
			case <-time.After(ttl + ttl/3): // only renewals can have kept it
			}
			release(t, l)
		})
	}
}
