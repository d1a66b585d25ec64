package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// granted is a waiter on its own client, and the scripts by which it comes to a lease.
type granted struct {
	acquire, confirm *scriptHook
	got              chan *lease.Lease
}

// waiter queues a waiter up for r that a release may grant the lease. It takes the server for a distant one, so it has
// some seconds for what it does, whatever else the machine does. see, if not nil, sees its confirmations.
func (b bundle) waiter(
	t *testing.T,
	opts *lease.AcquireOptions,
	see func(cmd redis.Cmder, next func() error) error,
) *granted {
	t.Helper()
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	m := manager(t, rdb, lease.Options{Prefix: b.prefix, Label: "waiter", PollEvery: time.Hour})
	lease.TakeForDistant(m)
	w := &granted{acquire: spyOn(t, rdb, "acquire"), confirm: spyOn(t, rdb, "confirm"), got: make(chan *lease.Lease, 1)}
	w.confirm.see, w.confirm.texts = see, true // far from the server a renewal brings the script along
	b.queueUpFor(t.Context(), t, m, opts, into(t, w.got))
	return w
}

// A release grants the lease to the head, which returns without a call of its own. It is then confirmed.
func TestAHandOffIsOneMessage(t *testing.T) {
	t.Parallel()
	for _, opts := range []*lease.AcquireOptions{nil, {NoRenewal: true}} {
		b := setup(t, lease.Options{})
		holder := b.acquire(t, "r", time.Minute, nil)
		resume := make(chan struct{})
		w := b.waiter(t, opts, func(_ redis.Cmder, next func() error) error { <-resume; return next() })
		asked := w.acquire.calls.Load()
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := soon(t, w.got)
		if left := l.Remaining(); left > 10*time.Second || l.Token() != holder.Token()+1 {
			t.Errorf("token %d, and %v left", l.Token(), left)
		}
		if n := b.queueLength(t); n != 0 {
			t.Errorf("%d places are left", n)
		}
		close(resume)
		eventually(t, "the confirmation", func() bool { return l.Remaining() > 50*time.Second })
		leaseKey, _ := lease.KeysOf(b.prefix, "r")
		if value := b.rdb.Get(t.Context(), leaseKey).Val(); value != fmt.Sprintf("%s %d waiter", l.Nonce().Hex(), l.Token()) {
			t.Errorf("the key is %q", value)
		}
		if again := w.acquire.calls.Load() - asked; again != 0 {
			t.Errorf("the waiter sent %d acquires to get what it was granted", again)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// I6: a lease that is not confirmed ends before the server could grant it to another, and the next waiter gets it.
func TestAnUnconfirmedLeaseEndsInTime(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	holder := b.acquire(t, "r", time.Minute, nil)
	resume := make(chan struct{})
	defer close(resume)
	w := b.waiter(t, nil, func(_ redis.Cmder, next func() error) error { <-resume; return next() })
	next := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, next))
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := soon(t, w.got)
	within(t, "its end", 15*time.Second, l.Done())
	taken := b.rdb.Get(t.Context(), leaseKey).Val() // on a slow machine somebody has it by now
	wantErr(t, l.Err(), lease.ErrLost)
	wantReason(t, l.Err(), lease.ReasonUnreachable)
	other := soon(t, next)
	if other.Token() <= l.Token() || strings.HasPrefix(taken, other.Nonce().Hex()) && other.Remaining() == 0 {
		t.Errorf("token %d after %d", other.Token(), l.Token())
	}
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

var errDropped = errors.New("not sent")

// A confirmation that fails is sent again, also if the holder renews by itself otherwise.
func TestAConfirmationThatFailsIsMadeUpFor(t *testing.T) {
	t.Parallel()
	for _, opts := range []*lease.AcquireOptions{nil, {NoRenewal: true}} {
		b := setup(t, lease.Options{})
		holder := b.acquire(t, "r", time.Minute, nil)
		var tries atomic.Int32
		w := b.waiter(t, opts, func(cmd redis.Cmder, next func() error) error {
			if tries.Add(1) > 1 {
				return next()
			}
			cmd.SetErr(errDropped)
			return errDropped
		})
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := soon(t, w.got)
		eventually(t, "a renewal", func() bool { return l.Remaining() > 50*time.Second || l.Err() != nil })
		leaseKey, _ := lease.KeysOf(b.prefix, "r")
		if value := b.rdb.Get(t.Context(), leaseKey).Val(); !strings.HasSuffix(value, " waiter") {
			t.Errorf("the key is %q", value)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A holder that releases before it is confirmed leaves nothing, and one whose token is replaced keeps the new one.
func TestAConfirmationThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	for name, first := range map[string]func(*lease.Lease) error{
		"released": func(l *lease.Lease) error { return l.Release(t.Context()) },
		"reissued": func(l *lease.Lease) error { _, err := l.Reissue(t.Context(), 100); return err },
	} {
		holder := b.acquire(t, "r", time.Minute, nil)
		resume, sent := make(chan struct{}), make(chan struct{}, 1)
		w := b.waiter(t, nil, func(_ redis.Cmder, next func() error) error {
			<-resume
			err := next()
			sent <- struct{}{}
			return err
		})
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := soon(t, w.got)
		if err := first(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		close(resume)
		within(t, "the confirmation", 5*time.Second, sent)
		if name == "released" {
			if b.exists(t, leaseKey) {
				t.Error("a confirmation made a lease")
			}
			continue
		}
		eventually(t, "the confirmation's reply", func() bool { return l.Remaining() > 50*time.Second })
		if value := b.rdb.Get(t.Context(), leaseKey).Val(); value != fmt.Sprintf("%s 101 waiter", l.Nonce().Hex()) {
			t.Errorf("the key is %q", value)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A waiter that stood still when it was granted the lease finds the message late. It does not hold what has gone to
// another since, and it keeps its place before those behind it.
func TestAGrantFoundTooLateIsNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	first, second, third := make(chan *lease.Lease, 1), make(chan *lease.Lease, 1), make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, manager(t, p.client, lease.Options{Prefix: b.prefix}), into(t, first))
	eventually(t, "the first to hear", func() bool {
		return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
	})
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, second))
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, third))
	p.proxy.Hang()
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	passed := soon(t, second)
	p.proxy.Resume()
	eventually(t, "the first to queue up again", func() bool { return b.queueLength(t) == 2 })
	if len(first) != 0 || passed.Err() != nil {
		t.Fatalf("two holders, or none: %v", passed.Err())
	}
	if err := passed.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := soon(t, first)
	if len(third) != 0 {
		t.Error("the third came before the first")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	given(t, third)
	p.proxy.Heal()
}

// A waiter whose message is lost looks, and is told that the lease is its own, with the token that it was granted.
func TestAGrantWhoseMessageWasLostIsFoundByALook(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	nonce, managerID := token.NewNonce().Hex(), token.NewNonce().Hex()
	channel := b.rdb.Subscribe(t.Context(), b.prefix+":wake:"+managerID)
	t.Cleanup(func() { _ = channel.Close() })
	if _, err := channel.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	me, queue := nonce+managerID+"+", b.prefix+":{r}:queue"
	b.do(t, "ZADD", queue, 1000, me)
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaseKey, counterKey := lease.KeysOf(b.prefix, "r")
	if left := b.pttl(t, leaseKey); left <= 0 || left > 10*time.Second {
		t.Errorf("it was granted for %v", left)
	}
	reply, err := redis.NewScript(acquireSource(t)).
		Run(t.Context(), b.rdb, []string{leaseKey, counterKey, queue},
			token.NewNonce().Hex(), 60_000, "label", "0", "0", me, b.prefix+":wake:", 200, 75_000, "1", "").
		Slice()
	if err != nil {
		t.Fatal(err)
	}
	if len(reply) != 2 || reply[0] != "yours" || reply[1] != (holder.Token()+1).String() {
		t.Errorf("got %v", reply)
	}
	if left := b.pttl(t, leaseKey); left < 50*time.Second {
		t.Errorf("it has %v left", left)
	}
	if value := b.rdb.Get(t.Context(), leaseKey).Val(); value != fmt.Sprintf("%s %s label", nonce, reply[1]) {
		t.Errorf("the key is %q", value)
	}
}

// The message names the server that granted, and its clock, as the reply to a waiter does.
func TestAGrantSaysWhoseClockItGoesBy(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	nonce, managerID := token.NewNonce().Hex(), token.NewNonce().Hex()
	channel := b.rdb.Subscribe(t.Context(), b.prefix+":wake:"+managerID)
	t.Cleanup(func() { _ = channel.Close() })
	if _, err := channel.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.do(t, "ZADD", b.prefix+":{r}:queue", 1000, nonce+managerID+"+")
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	message, err := channel.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var id, tok, server string
	var at, ends int64
	if _, err := fmt.Sscanf(message.Payload, "%s = %s %d %d %s", &id, &tok, &at, &ends, &server); err != nil {
		t.Fatalf("%q: %v", message.Payload, err)
	}
	info := b.rdb.Info(t.Context(), "server").Val()
	if id != nonce || tok != (holder.Token()+1).String() || !strings.Contains(info, "run_id:"+server+"\r\n") {
		t.Errorf("got %q", message.Payload)
	}
	if kept := time.Duration(ends-at) * time.Microsecond; kept <= 190*time.Millisecond || kept > 10*time.Second {
		t.Errorf("granted for %v", kept)
	}
}

// A waiter that gives up hands on what it was just granted, whichever comes first.
func TestAWaiterThatGivesUpHandsOnWhatItWasGranted(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	head := manager(t, testenv.RedisOn(t, testenv.RedisURL(t)), lease.Options{Prefix: b.prefix})
	next := manager(t, testenv.RedisOn(t, testenv.RedisURL(t)), lease.Options{Prefix: b.prefix})
	var gaveUp, had atomic.Int32
	for range 50 {
		holder := b.acquire(t, "r", time.Minute, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		b.queueUp(ctx, t, head, func(l *lease.Lease, err error) {
			defer close(ended)
			if err != nil {
				gaveUp.Add(1)
				return
			}
			had.Add(1)
			if err := l.Release(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		got := make(chan *lease.Lease, 1)
		b.queueUp(t.Context(), t, next, into(t, got))
		go cancel()
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		given(t, got)
		within(t, "the head's end", 5*time.Second, ended)
	}
	t.Logf("%d gave up, %d had it", gaveUp.Load(), had.Load())
	eventually(t, "all keys but the counter to be gone", func() bool {
		return !b.exists(t, b.prefix+":{r}:queue") && !b.exists(t, b.prefix+":{r}:lease")
	})
}

// A waiter whose own clock stepped while it waited does not know how long ago it asked. It confirms before it returns.
func TestAWaiterWhoseClockSteppedConfirmsFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	var step atomic.Int64
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	confirms := spyOn(t, rdb, "confirm")
	m := manager(t, rdb, lease.Options{Prefix: b.prefix, WallClock: func() time.Time {
		return time.Now().Add(time.Duration(step.Load()))
	}})
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, m, into(t, got))
	eventually(t, "the waiter to hear", func() bool {
		return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
	})
	step.Store(int64(time.Hour))
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := soon(t, got)
	if left := l.Remaining(); left < 50*time.Second || confirms.calls.Load() != 1 {
		t.Errorf("%v left after %d confirmations", left, confirms.calls.Load())
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without the right to ask the server who it is, a release reserves the lease, and the waiter asks for it.
func TestAServerThatMayNotBeAskedWhoItIsReserves(t *testing.T) {
	t.Parallel()
	for _, less := range []string{"-info", "-pexpireat"} {
		server := testenv.OwnRedis(t)
		client := connectAs(t, server.Addr(), append(documentedUser(t, server), less))
		m := manager(t, client, lease.Options{Prefix: "fencepost:billing", PollEvery: 10 * time.Millisecond})
		waits := manager(t, client, lease.Options{Prefix: "fencepost:billing", PollEvery: 10 * time.Millisecond})
		for range 2 {
			first, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan *lease.Lease, 1)
			go func() { into(t, got)(waits.Acquire(t.Context(), "r", time.Minute, nil)) }()
			eventually(t, "a waiter", func() bool {
				return client.Exists(t.Context(), "fencepost:billing:{r}:queue").Val() == 1
			})
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
			given(t, got)
		}
	}
}
