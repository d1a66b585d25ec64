package lease_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
)

// slowDialer dials its second connection only when told to. With one command at a time that is the subscription's.
type slowDialer struct {
	dials  atomic.Int32
	asked  chan struct{}
	resume chan struct{}
}

func newSlowDialer() *slowDialer {
	return &slowDialer{asked: make(chan struct{}), resume: make(chan struct{})}
}

func (d *slowDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.dials.Add(1) == 2 {
		close(d.asked)
		<-d.resume
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// A caller that waits for a lease does not wait for a subscription beyond its context; nor do others that wait with it.
func TestACallEndsWithItsContextThoughSubscribingHangs(t *testing.T) {
	t.Parallel()
	dialer := newSlowDialer()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.Dialer = dialer.dial })
	defer close(dialer.resume)
	p.acquire(t, "r", time.Minute, nil)
	var ended [2]chan struct{}
	ctx, cancel := context.WithCancel(t.Context())
	for i := range ended {
		ended[i] = make(chan struct{})
		go func() {
			defer close(ended[i])
			_, err := p.m.Acquire(ctx, "r", time.Minute, nil)
			wantErr(t, err, lease.ErrHeld, context.Canceled)
		}()
		within(t, "the subscription", 5*time.Second, dialer.asked)
	}
	eventually(t, "two places in the queue", func() bool { return p.queueLength(t) == 2 })
	cancel()
	for _, done := range ended {
		within(t, "the end of the call", 5*time.Second, done) // the dial hangs to the end of the test
	}
	eventually(t, "the queue to be empty", func() bool { return p.queueLength(t) == 0 })
}

// Nobody can hear of a grant before the subscription is ready, so a release draws no token for a waiter until then.
func TestNoTokenIsDrawnForAWaiterThatCannotHearOfIt(t *testing.T) {
	t.Parallel()
	dialer := newSlowDialer()
	p := setupProxied(t, lease.Options{PollEvery: 20 * time.Millisecond},
		func(o *redis.Options) { o.Dialer = dialer.dial })
	defer close(dialer.resume)
	holder := p.acquire(t, "r", time.Minute, nil)
	got := make(chan *lease.Lease, 1)
	p.queueUp(t.Context(), t, p.m, into(t, got))
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := soon(t, got); l.Token() != holder.Token()+1 {
		t.Errorf("token %d follows %d", l.Token(), holder.Token())
	}
}

// The lease is released after the waiter asked and before its subscription was ready, so nobody received the message.
// The waiter must not trust the subscription that it has by the time of the reply.
func TestAMessageBeforeTheSubscriptionIsMadeUpFor(t *testing.T) {
	t.Parallel()
	dialer := newSlowDialer()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.Dialer = dialer.dial })
	straight := bundle{rdb: p.rdb, prefix: p.prefix, m: manager(t, p.rdb, lease.Options{Prefix: p.prefix})}
	holder := straight.acquire(t, "r", time.Minute, nil)
	asked, resume := make(chan struct{}), make(chan struct{})
	hook := spyOn(t, p.client, "acquire")
	hook.see = func(_ redis.Cmder, next func() error) error {
		n := hook.calls.Load()
		err := next()
		if n == 2 { // the first with a place in the queue
			close(asked)
			<-resume
		}
		return err
	}
	if err := p.client.ScriptLoad(t.Context(), acquireSource(t)).Err(); err != nil {
		t.Fatal(err)
	}
	got := make(chan *lease.Lease, 1)
	go func() {
		l, err := p.m.Acquire(t.Context(), "r", time.Minute, nil)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	within(t, "the attempt", 5*time.Second, asked)
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(dialer.resume)
	eventually(t, "the subscription", func() bool {
		return len(p.rdb.PubSubChannels(t.Context(), p.prefix+":wake:*").Val()) == 1
	})
	<-time.After(20 * time.Millisecond) // and its confirmation on the waiter's side
	close(resume)
	given(t, got)
}
