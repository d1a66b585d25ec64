package otelfencepost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fenceposttest"
	"github.com/fencepost-pg/fencepost/otelfencepost"
)

func TestMain(m *testing.M) { fenceposttest.Main(m) }

const patience = 10 * time.Second

// signals are the events that are told in the background, as a service's own handlers would wait for them.
type signals struct{ lost, late chan struct{} }

func (s *signals) events() fencepost.Events {
	return fencepost.Events{
		Lost: func(context.Context, string, fencepost.Token, *fencepost.LostError) { s.lost <- struct{}{} },
		RenewedLate: func(context.Context, string, fencepost.Token, time.Duration, error) {
			s.late <- struct{}{}
		},
	}
}

func await(t *testing.T, what string, told <-chan struct{}) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatalf("not told of: %s", what)
	}
}

// story is a worker whose store reports to a pipeline, on real servers, and to which everything happens.
type story struct {
	*fenceposttest.Env
	t    *testing.T
	told *signals
}

func newStory(t *testing.T, opts otelfencepost.Options) *story {
	t.Helper()
	events, err := otelfencepost.New(&opts)
	if err != nil {
		t.Fatal(err)
	}
	told := &signals{lost: make(chan struct{}, 10), late: make(chan struct{}, 10)}
	settings := fencepost.Options{Events: otelfencepost.Chain(events, told.events())}
	return &story{Env: fenceposttest.New(t, &fenceposttest.Options{Store: settings}), t: t, told: told}
}

func (s *story) acquire(ctx context.Context, resource string, opts *fencepost.AcquireOptions) *fencepost.Lease {
	s.t.Helper()
	l, err := s.Store.Acquire(ctx, resource, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *story) want(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("got %v, want %v", err, want)
	}
}

func nothing(context.Context, pgx.Tx) error { return nil }

// everything lets each kind of event happen.
func (s *story) everything(ctx context.Context) {
	s.t.Helper()
	s.want(s.Store.Do(ctx, "customer-4711:do", nothing), nil)
	s.handOff(ctx)
	s.losses(ctx)
	s.counters(ctx)
	s.lateRenewal(ctx)
	s.transactions(ctx)
}

// handOff lets a second worker of this process wait for the first.
func (s *story) handOff(ctx context.Context) {
	s.t.Helper()
	const resource = "customer-4711:handoff"
	first := s.acquire(ctx, resource, nil)
	_, err := s.Store.TryAcquire(ctx, resource, nil)
	s.want(err, fencepost.ErrHeld)
	var second sync.WaitGroup
	second.Go(func() { s.want(s.Store.Do(ctx, resource, nothing), nil) })
	queue := "fencepost:" + s.Namespace + ":{" + resource + "}:queue"
	for began := time.Now(); s.Redis.Exists(ctx, queue).Val() == 0; <-time.After(time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatal("nobody waits")
		}
	}
	s.want(first.Release(ctx), nil)
	second.Wait()
}

// losses lets one lease go in Redis, and another be overtaken in PostgreSQL.
func (s *story) losses(ctx context.Context) {
	s.t.Helper()
	s.Lose(s.acquire(ctx, "customer-4711:gone", nil))
	await(s.t, "a lost lease", s.told.lost)
	l := s.acquire(ctx, "customer-4711:overtaken", nil)
	s.TakeOver(l.Resource())
	s.want(s.Store.Tx(ctx, nothing, l), fencepost.ErrStale)
	await(s.t, "a stale lease", s.told.lost)
}

// counters lets Redis lose its token counters, and go back to older ones.
func (s *story) counters(ctx context.Context) {
	s.t.Helper()
	s.RedisForgets()
	s.want(s.Store.Do(ctx, "customer-4711:do", nothing), nil)
	counter := "fencepost:" + s.Namespace + ":{customer-4711:do}:token"
	s.want(s.Redis.Set(ctx, counter, "1", 0).Err(), nil)
	s.want(s.Store.Do(ctx, "customer-4711:do", nothing), nil)
}

func (s *story) lateRenewal(ctx context.Context) {
	s.t.Helper()
	l := s.acquire(ctx, "customer-4711:late", &fencepost.AcquireOptions{TTL: 2 * time.Second})
	resume := s.Pause()
	await(s.t, "a late renewal", s.told.late)
	resume()
	_ = l.Release(ctx) // it may have been lost by now
}

// transactions lets one run again, and three lose the reply to their COMMIT.
func (s *story) transactions(ctx context.Context) {
	s.t.Helper()
	l, tries := s.acquire(ctx, "customer-4711:tx", nil), 0
	s.want(s.Store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if tries++; tries > 1 {
			return nil
		}
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		return err
	}, l), nil)
	s.DropNextCommitReply()
	s.want(s.Store.Tx(ctx, write, l), nil)
	s.DropNextCommit()
	s.want(s.Store.Tx(ctx, write, l), fencepost.ErrUnavailable)
	s.DropNextCommitReply()
	s.want(s.Store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// PostgreSQL restarts as another incarnation, so that it cannot say what became of this transaction.
		_, err := s.Pool.Exec(ctx, `DELETE FROM fencepost.incarnation`)
		return errors.Join(err, second(s.Pool.Exec(ctx, `SELECT fencepost.begin_incarnation()`)), write(ctx, tx))
	}, l), fencepost.ErrOutcomeUnknown)
	s.want(l.Release(ctx), nil)
}

func write(ctx context.Context, tx pgx.Tx) error {
	return second(tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS written (n int)`))
}

func second[A any](_ A, err error) error { return err }

// ofStore is an attribute that a service may want on everything.
func ofStore() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("store", "billing")}
}
