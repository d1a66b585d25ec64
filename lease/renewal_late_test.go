package lease_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// detour is a client whose connections lead through a proxy at first, and around it once straight is set: what the
// proxy keeps arrives after what was sent later.
type detour struct {
	client   *redis.Client
	proxy    *faults.Proxy
	straight atomic.Bool
}

func newDetour(t *testing.T, addr string) *detour {
	t.Helper()
	d := &detour{proxy: faults.NewProxy(t, addr)}
	d.client = redis.NewClient(&redis.Options{
		// One connection: of two, the one that is not in use when the proxy hangs would hang at the next call. The time
		// is what a server on a busy machine may need for an answer.
		Addr: addr, MaxRetries: -1, ReadTimeout: time.Second, PoolSize: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !d.straight.Load() {
				addr = d.proxy.Addr()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { _ = d.client.Close() })
	return d
}

// keep makes the proxy keep what is sent from now on, by a call that gets no reply; anything sent later goes around it.
func (d *detour) keep(t *testing.T, call func() error) {
	t.Helper()
	d.proxy.Hang()
	wantErr(t, call(), lease.ErrUnavailable)
	d.straight.Store(true)
}

// A renewal without a reply may arrive when a later one, with another TTL, has been answered. The holder relies on the
// key for no longer than Redis keeps it, whichever of the two was shorter.
func TestARenewalThatArrivesLateTakesNothingAway(t *testing.T) {
	t.Parallel()
	const short, long = 10 * time.Second, time.Minute
	for name, c := range map[string]struct {
		granted, late time.Duration
		left          time.Duration // the least that the key has left once the late one has arrived
	}{
		"as long as the grant": {short, short, short},
		"a shorter one":        {long, short, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t)
			d := newDetour(t, server.Addr())
			b := bundle{rdb: testenv.RedisOn(t, server.URL()), prefix: "p", m: manager(t, d.client, lease.Options{Prefix: "p"})}
			leaseKey, _ := lease.KeysOf(b.prefix, "r")
			l := b.acquire(t, "r", c.granted, &lease.AcquireOptions{NoRenewal: true})
			d.keep(t, func() error { return l.Renew(t.Context(), c.late) })
			if err := l.Renew(t.Context(), long); err != nil {
				t.Fatal(err)
			}
			before := scriptsRun(t, b.rdb)
			d.proxy.Resume()
			eventually(t, "the late renewal's arrival", func() bool { return scriptsRun(t, b.rdb) > before })
			wantKeptLonger(t, l, func() time.Duration { return b.pttl(t, leaseKey) })
			if left := b.pttl(t, leaseKey); left <= c.left {
				t.Errorf("the late renewal left %v", left)
			}
		})
	}
}

// wantKeptLonger checks that Redis keeps a key, which has the given time left, for as long as its holder relies on it.
func wantKeptLonger(t *testing.T, l *lease.Lease, pttl func() time.Duration) {
	t.Helper()
	remaining, began := l.Remaining(), time.Now()
	if left := pttl(); remaining > left+time.Since(began) {
		t.Errorf("the holder relies on its lease for %v, Redis keeps it for %v", remaining, left)
	}
}

// scriptsRun returns how many scripts a server has run, by its own count.
func scriptsRun(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		var calls int
		_, _ = fmt.Sscanf(stats["Commandstats"][command], "calls=%d", &calls) // 0 of one that was never run
		n += calls
	}
	return n
}

// On a quorum, a server that is slower than the majority may carry out a shorter renewal after a longer one that it
// confirmed.
func TestARenewalThatArrivesLateAtOneServerTakesNothingAway(t *testing.T) {
	t.Parallel()
	const short, long = 10 * time.Second, time.Minute
	var clients, straight []redis.UniversalClient
	var proxies []*faults.Proxy
	var last *detour
	for range 3 {
		server := testenv.OwnRedis(t)
		straight = append(straight, testenv.RedisOn(t, server.URL()))
		d := newDetour(t, server.Addr())
		clients, proxies, last = append(clients, d.client), append(proxies, d.proxy), d
	}
	q := newQuorum(t, clients, lease.QuorumOptions{Options: lease.Options{Prefix: "p"}, NodeTimeout: 5 * time.Second})
	l := try(t, q, "r", long, &lease.AcquireOptions{NoRenewal: true})
	eventually(t, "all shares", func() bool {
		have, of := l.Shares()
		if have < of { // a server took too long: a renewal fills its share
			_ = l.Renew(t.Context(), long)
		}
		return have == of
	})
	last.proxy.Hang()
	last.straight.Store(true)
	if err := l.Renew(t.Context(), short); err != nil { // by the first two
		t.Fatal(err)
	}
	eventually(t, "the end of the call that hangs", func() bool { have, of := l.Shares(); return have < of })
	proxies[0].Cut() // so that the last one's answer counts
	if err := l.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	before := scriptsRun(t, straight[2])
	last.proxy.Resume()
	eventually(t, "the late renewal's arrival", func() bool { return scriptsRun(t, straight[2]) > before })
	wantKeptLonger(t, l, func() time.Duration { return straight[2].PTTL(t.Context(), "p:{r}:lease").Val() })
}
