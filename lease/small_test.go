package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// C60: a counter that a manager with CounterIdle left to expire never expires once a manager without it has granted.
func TestCase60_AGrantWithoutCounterIdleTakesTheExpiryOff(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{CounterIdle: 48 * time.Hour})
	_, counterKey := lease.KeysOf(b.prefix, "r")
	if err := b.acquire(t, "r", time.Minute, nil).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.pttl(t, counterKey) <= 0 {
		t.Fatal("the counter does not expire: the test shows nothing")
	}
	never := manager(t, b.rdb, lease.Options{Prefix: b.prefix})
	l, err := never.TryAcquire(t.Context(), "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ttl := b.rdb.PTTL(t.Context(), counterKey).Val(); ttl != -1 {
		t.Errorf("the counter has %v left", ttl)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// C61: a value that begins with our nonce but continues differently is not ours.
func TestCase61_AForeignKeyIsUntouched(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	foreign := l.Nonce().Hex() + "0123 1 somebody"
	if err := b.rdb.Set(t.Context(), leaseKey, foreign, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	err := l.Release(t.Context())
	wantErr(t, err, lease.ErrLost)
	wantReason(t, err, lease.ReasonTaken)
	if got := b.rdb.Get(t.Context(), leaseKey).Val(); got != foreign {
		t.Errorf("the key holds %q", got)
	}
}

// C61: a value that only looks like a reservation or a roll call is reported, and stays.
func TestCase61_NoForeignKeyIsTakenForAReservation(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	id := token.NewNonce().Hex()
	for value, ttl := range map[string]time.Duration{
		"~":                              time.Minute,
		"~" + strings.Repeat("x", 32):    time.Minute,
		"~" + id + "0":                   time.Minute,
		"~" + id + " ":                   time.Minute,
		"~" + id:                         0,
		"?" + id:                         time.Minute,
		"?" + id + " 200":                0,
		"?" + id + " 200 1700000000000":  0,
		"?" + id + " 200 and so on":      time.Minute,
		"!" + id + " 200":                time.Minute,
		id + "0 1 somebody":              time.Minute,
		id[:31] + " 1 somebody":          time.Minute,
		id + " one somebody":             time.Minute,
		strings.ToUpper(id) + "somebody": time.Minute,
	} {
		if err := b.rdb.Set(t.Context(), leaseKey, value, ttl).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
		if !errors.Is(err, lease.ErrBadKey) {
			t.Errorf("%q: %v", value, err)
		}
		if got := b.rdb.Get(t.Context(), leaseKey).Val(); got != value {
			t.Errorf("%q has become %q", value, got)
		}
	}
}

// C61: a counter holds a token, or an operator has to fix it: repeated acquires do not count it up until it grants.
func TestCase61_NoGrantUnderABadCounter(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, counterKey := lease.KeysOf(b.prefix, "r")
	for _, value := range []string{
		"-3", "-1", "-9007199254740993", "-9223372036854775808", "007", "1.0", " 5", "5 ", "", "+5", "1e3", "0x10", "nan",
		"9223372036854775807", "9223372036854775808", "99999999999999999999999",
	} {
		for _, floor := range []token.Token{0, 1000} {
			if err := b.rdb.Set(t.Context(), counterKey, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, &lease.AcquireOptions{Floor: floor})
				if !errors.Is(err, lease.ErrBadKey) {
					t.Errorf("%q, floor %d: %v", value, floor, err)
				}
			}
			if got := b.rdb.Get(t.Context(), counterKey).Val(); got != value {
				t.Errorf("%q has become %q", value, got)
			}
			if b.exists(t, leaseKey) {
				t.Errorf("%q: a lease without a token", value)
			}
		}
	}
	b.do(t, "SET", counterKey, "41") // fixed by an operator
	if l := b.acquire(t, "r", time.Minute, nil); l.Token() != 42 {
		t.Errorf("token %d", l.Token())
	}
}

// C61: an error documented as a *HeldError is one, not only something that unwraps to one.
func TestCase61_HeldErrorsAreWhatTheyAreSaidToBe(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if _, ok := err.(*lease.HeldError); !ok { //nolint:errorlint // that is the point
		t.Errorf("TryAcquire returned a %T", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	b.queueUp(ctx, t, b.m, func(_ *lease.Lease, err error) { ended <- err })
	cancel()
	err = <-ended
	parts, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("Acquire returned a %T", err)
	}
	if _, ok := parts.Unwrap()[0].(*lease.HeldError); !ok { //nolint:errorlint // that is the point
		t.Errorf("Acquire's last outcome is a %T", parts.Unwrap()[0])
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// asking is a log handler that calls the lease, like one that adds the held leases to each record.
type asking struct {
	slog.Handler
	ask chan func()
}

func (a asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(context.Context, slog.Record) error {
	select {
	case ask := <-a.ask:
		ask()
	default:
	}
	return nil
}

// C61: no lock is held while the caller's code runs, however a lease ends.
func TestCase61_ALogHandlerMayAskTheLease(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b bundle, leaseKey string, l *lease.Lease){
		"abandoned": func(_ bundle, _ string, l *lease.Lease) { l.Abandon(lease.ReasonTaken, nil) },
		"renewal": func(b bundle, key string, l *lease.Lease) {
			b.rdb.Del(t.Context(), key)
			_ = l.Renew(t.Context(), time.Minute)
		},
		"reissue": func(b bundle, key string, l *lease.Lease) {
			b.rdb.Del(t.Context(), key)
			_, _ = l.Reissue(t.Context(), 5)
		},
		"deadline": func(_ bundle, _ string, l *lease.Lease) { <-l.Done() },
		"asked":    func(_ bundle, _ string, l *lease.Lease) { <-time.After(l.Remaining()); _ = l.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := asking{ask: make(chan func(), 1)}
			b := setup(t, lease.Options{Logger: slog.New(handler)})
			ttl := time.Minute
			if name == "deadline" || name == "asked" {
				ttl = 50 * time.Millisecond
			}
			l := b.acquire(t, "r", ttl, &lease.AcquireOptions{NoRenewal: true})
			asked := make(chan struct{})
			handler.ask <- func() {
				_, _, _, _ = l.Err(), l.Remaining(), l.Token(), l.Context()
				close(asked)
			}
			leaseKey, _ := lease.KeysOf(b.prefix, "r")
			go end(b, leaseKey, l)
			within(t, "an answer to the log handler", 5*time.Second, asked)
		})
	}
}

// asker is a wall clock that calls a lease, like one that wants to know what a step of it would end. It calls once for
// each question, because the lease reads the clock as well.
type asker struct {
	lease atomic.Pointer[lease.Lease]
	asked atomic.Int32
	busy  atomic.Bool
}

func (a *asker) now() time.Time {
	if l := a.lease.Load(); l != nil && a.busy.CompareAndSwap(false, true) {
		_, _, _, _ = l.Err(), l.Remaining(), l.Token(), l.Context()
		a.asked.Add(1)
		a.busy.Store(false)
	}
	return time.Now()
}

// C61: the wall clock is the caller's code. It is read with no lock held, whatever reads it.
func TestCase61_AWallClockMayAskTheLease(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(l *lease.Lease){
		"err":       func(l *lease.Lease) { _ = l.Err() },
		"remaining": func(l *lease.Lease) { _ = l.Remaining() },
		"renew":     func(l *lease.Lease) { _ = l.Renew(t.Context(), time.Minute) },
		"shorten":   func(l *lease.Lease) { _ = l.Renew(t.Context(), time.Second) },
		"reissue":   func(l *lease.Lease) { _, _ = l.Reissue(t.Context(), 5) },
		"progress":  func(l *lease.Lease) { l.Progress() },
		"abandon":   func(l *lease.Lease) { l.Abandon(lease.ReasonTaken, nil) },
		"release":   func(l *lease.Lease) { _ = l.Release(t.Context()) },
		"keeper":    func(*lease.Lease) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wall := &asker{}
			b := setup(t, lease.Options{WallClock: wall.now})
			l, err := b.m.TryAcquire(t.Context(), "r", time.Minute, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			wall.lease.Store(l)
			done := make(chan struct{})
			go func() {
				defer close(done)
				call(l)
			}()
			within(t, "the end of the call", 5*time.Second, done)
			eventually(t, "a question of the clock's", func() bool { return wall.asked.Load() > 0 })
			_ = l.Release(t.Context()) // not after a failure: it would wait as well
		})
	}
}

// C61: a nil pointer in the interface is a nil client.
func TestCase61_NilClientsAreInvalid(t *testing.T) {
	t.Parallel()
	good := testenv.Redis(t)
	for name, client := range map[string]redis.UniversalClient{
		"nil": nil, "client": (*redis.Client)(nil), "cluster": (*redis.ClusterClient)(nil), "ring": (*redis.Ring)(nil),
	} {
		_, err := lease.NewManager(client, nil)
		if !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = lease.NewQuorum([]redis.UniversalClient{good, client, client}, nil)
		if !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s of a quorum: %v", name, err)
		}
	}
}

// wrappedClient is a client of a type that Go cannot compare.
type wrappedClient struct {
	redis.UniversalClient
	_ []string
}

// C61: a quorum takes clients that cannot be compared, as it takes others.
func TestCase61_ClientsThatCannotBeComparedAreTaken(t *testing.T) {
	t.Parallel()
	clients := make([]redis.UniversalClient, 3)
	for i := range clients {
		clients[i] = wrappedClient{UniversalClient: testenv.Redis(t)}
	}
	if _, err := lease.NewQuorum(clients, nil); err != nil {
		t.Errorf("NewQuorum = %v", err)
	}
}
