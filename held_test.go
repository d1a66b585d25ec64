package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// worker runs work under leases: a Store, or an AdvisoryTx.
type worker interface {
	Do(ctx context.Context, resource string, fn fencepost.TxFunc) error
	Join(ctx context.Context, resource string, fn fencepost.TxFunc) error
}

// opener makes another worker of a kind on the same servers. Its namespace is the test's and the kind's own, with a
// suffix.
type opener func(suffix string, events ...fencepost.Events) worker

// openStore opens a kind that is a Store.
func openStore(open opener, suffix string, events ...fencepost.Events) *fencepost.Store {
	return open(suffix, events...).(*fencepost.Store)
}

// kinds are the stores over each source of leases. There is one database for all of them.
func kinds(t *testing.T) (*pgxpool.Pool, map[string]opener) {
	t.Helper()
	pool, rdb := testenv.Pool(t), testenv.Redis(t)
	exec(t, pool, createInvoices)
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, testenv.RedisOn(t, testenv.OwnRedis(t).URL()))
	}
	kind := func(name string, open func(*pgxpool.Pool, *fencepost.Options) (worker, error)) opener {
		return func(suffix string, events ...fencepost.Events) worker {
			o := &fencepost.Options{
				Namespace: pool.Config().ConnConfig.Database + name + suffix, TTL: 10 * time.Second, MaxIdle: 10 * time.Second,
			}
			for _, e := range events {
				o.Events = e
			}
			s, err := open(pool, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	return pool, map[string]opener{
		"New": kind("New", func(pool *pgxpool.Pool, o *fencepost.Options) (worker, error) {
			return fencepost.New(pool, rdb, o)
		}),
		"NewQuorum": kind("NewQuorum", func(pool *pgxpool.Pool, o *fencepost.Options) (worker, error) {
			return fencepost.NewQuorum(pool, nodes, o)
		}),
		"NewAdvisory": kind("NewAdvisory", func(pool *pgxpool.Pool, o *fencepost.Options) (worker, error) {
			return fencepost.NewAdvisory(pool, o)
		}),
		"NewAdvisoryTx": kind("NewAdvisoryTx", func(pool *pgxpool.Pool, o *fencepost.Options) (worker, error) {
			return fencepost.NewAdvisoryTx(pool, txOptions(o))
		}),
	}
}

// shortly bounds a call that must not wait.
func shortly(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// wantHeldByCaller requires the refusal, and no other outcome.
func wantHeldByCaller(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, fencepost.ErrHeldByCaller) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(
			err,
			fencepost.ErrHeld,
		) || errors.Is(err, fencepost.ErrInvalid) || errors.Is(err, fencepost.ErrUnavailable) {
		t.Errorf("%s: got %v, want ErrHeldByCaller", what, err)
	}
}

// C38: a caller that holds a lease and asks for it again, in whatever way, gets an error at once and does not wait for
// itself.
func TestCase38_DoInsideDoIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, twin := open(""), open("")
			refused := make(map[string]error)
			err := s.Do(shortly(t.Context(), t), "r", func(ctx context.Context, _ pgx.Tx) error {
				l, _ := fencepost.FromContext(ctx)
				refused["Do"] = s.Do(ctx, "r", setValue("x"))
				refused["without the end of ctx"] = s.Do(shortly(context.WithoutCancel(ctx), t), "r", setValue("x"))
				refused["twin"] = twin.Do(ctx, "r", setValue("x"))
				if s, ok := s.(*fencepost.Store); ok {
					refused["its lease's context"] = s.Do(shortly(l.Context(), t), "r", setValue("x"))
					refused["Acquire"] = second(s.Acquire(ctx, "r", nil))
					refused["TryAcquire"] = second(s.TryAcquire(ctx, "r", nil))
					refused["AcquireAll"] = second(s.AcquireAll(ctx, []string{"q", "r"}, nil))
					refused["Tx"] = s.Tx(ctx, setValue("x"), l)
					refused["Once"] = second(
						fencepost.Once(ctx, l, "k", nil, func(context.Context, pgx.Tx) (int, error) { return 0, nil }),
					)
				}
				return s.Do(ctx, "s", func(ctx context.Context, _ pgx.Tx) error {
					refused["the outer one's"] = s.Do(ctx, "r", setValue("x"))
					refused["the inner one's"] = twin.Do(ctx, "s", setValue("x"))
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
			for what, err := range refused {
				wantHeldByCaller(t, what, err)
			}
		})
	}
}

// C38 for leases that are held without a transaction. A call that names one of them acquires nothing.
func TestCase38_UnderALeasesContextItIsNotAcquiredAgain(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		if name == "NewAdvisoryTx" {
			continue // its leases are transactions
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(open, "")
			l := acquire(t, s, "r", nil)
			ctx := shortly(l.Context(), t)
			wantHeldByCaller(t, "Do", s.Do(ctx, "r", setValue("x")))
			wantHeldByCaller(t, "Acquire", second(s.Acquire(ctx, "r", nil)))
			wantHeldByCaller(t, "AcquireAll", second(s.AcquireAll(ctx, []string{"q", "r"}, nil)))
			other, err := s.Acquire(ctx, "q", nil) // which AcquireAll has left alone
			if err != nil {
				t.Fatal(err)
			}
			wantHeldByCaller(
				t,
				"the lease that the other was acquired under",
				s.Do(shortly(other.Context(), t), "r", setValue("x")),
			)
			if err := s.Tx(ctx, setValue("tx"), l, other); err != nil {
				t.Errorf("a transaction under leases that are held is what they are for: %v", err)
			}
			err = s.Tx(ctx, func(ctx context.Context, _ pgx.Tx) error {
				wantHeldByCaller(t, "the second lease of a transaction", s.Do(ctx, "q", setValue("x")))
				return nil
			}, l, other)
			if err := errors.Join(err, other.Release(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// The control: if the context does not carry the lease, the call waits for itself for as long as it may.
func TestCase38Control_WithoutTheContextItWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := b.store.Do(t.Context(), "r", func(context.Context, pgx.Tx) error {
		unrelated, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return b.store.Do(unrelated, "r", setValue("x"))
	})
	if wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded); errors.Is(err, fencepost.ErrHeldByCaller) {
		t.Errorf("got %v", err)
	}
}

// Independent callers wait for each other as usual.
func TestCase38_TwoCallersWaitForEachOther(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open("")
			done := make(chan error, 2)
			for range 2 {
				go func() { done <- s.Do(shortly(t.Context(), t), "r", addOne) }()
			}
			if err := errors.Join(<-done, <-done); err != nil {
				t.Error(err)
			}
		})
	}
}

// Only the same lease is refused: not one of another resource, of another namespace, or in another database.
func TestCase38_OtherLeasesAreAcquiredInside(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := open(""), open("-other")
			err := s.Do(shortly(t.Context(), t), "r", func(ctx context.Context, _ pgx.Tx) error {
				return errors.Join(s.Do(ctx, "s", setValue("x")), other.Do(ctx, "r", setValue("x")))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	here, opts := onLocks(t)
	there, _ := onLocks(t)
	err := advisoryStore(t, here, opts).Do(t.Context(), "r", func(ctx context.Context, _ pgx.Tx) error {
		return advisoryStore(t, there, opts).Do(shortly(ctx, t), "r", setValue("x"))
	})
	if err != nil {
		t.Errorf("in another database: %v", err)
	}
}

// A lease that is over keeps nobody waiting, once the transaction under it has ended.
func TestCase38_ALeaseThatIsOverDoesNotCount(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	released := b.acquire(t, "r", nil)
	if err := released.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Do(shortly(context.WithoutCancel(released.Context()), t), "r", setValue("a")); err != nil {
		t.Errorf("released: %v", err)
	}
	lost := b.acquireBriefly(t, "r")
	<-lost.Done()
	if err := b.store.Do(shortly(context.WithoutCancel(lost.Context()), t), "r", setValue("b")); err != nil {
		t.Errorf("lost: %v", err)
	}
	err := b.store.Do(t.Context(), "r", func(ctx context.Context, _ pgx.Tx) error {
		l, _ := fencepost.FromContext(ctx)
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		// The claim would wait for this very transaction.
		wantHeldByCaller(t, "its transaction is open", b.store.Do(shortly(context.WithoutCancel(ctx), t), "r", setValue("x")))
		return nil
	})
	wantErr(t, err, fencepost.ErrLost, fencepost.ErrReleased)
}

// wrappedClient is a client of the caller's own type, whose values cannot be compared.
type wrappedClient struct {
	redis.UniversalClient
	names []string
}

// Stores of different databases compare their clients. These clients differ, so one store's lease says nothing about
// the other's.
func TestCase38_ClientsThatCannotBeComparedAreDifferent(t *testing.T) {
	t.Parallel()
	open := func(rdb redis.UniversalClient) *fencepost.Store {
		s, err := fencepost.New(testenv.Pool(t), wrappedClient{rdb, []string{"mine"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own := func() redis.UniversalClient { return testenv.RedisOn(t, testenv.OwnRedis(t).URL()) }
	a, b := open(own()), open(own())
	err := a.Do(shortly(t.Context(), t), "r", func(ctx context.Context, _ pgx.Tx) error {
		return b.Do(ctx, "r", func(ctx context.Context, _ pgx.Tx) error {
			wantHeldByCaller(t, "the outer one's", a.Do(ctx, "r", setValue("x")))
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
