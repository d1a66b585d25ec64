package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

type spanKey struct{}

// span is a context as a tracer leaves it.
func span(ctx context.Context) context.Context { return context.WithValue(ctx, spanKey{}, "span") }

// journal records events in the order in which they are reported, and checks that each has the caller's context.
type journal struct {
	t    *testing.T
	mu   sync.Mutex
	told []string
	errs []error
	took []time.Duration
	lost chan context.Context
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	return &journal{t: t, lost: make(chan context.Context, 10)}
}

func (j *journal) note(ctx context.Context, took time.Duration, err error, what ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Value(spanKey{}) != "span" {
		j.t.Errorf("%v: without the caller's context", what)
	}
	j.told, j.errs, j.took = append(j.told, fmt.Sprint(what...)), append(j.errs, err), append(j.took, took)
}

func (j *journal) events() fencepost.Events {
	return fencepost.Events{
		Acquired: func(ctx context.Context, r string, tok fencepost.Token, waited time.Duration) {
			j.note(ctx, waited, nil, "acquired ", r, " ", tok)
		},
		Refused: func(ctx context.Context, r string, waited time.Duration, err error) {
			j.note(ctx, waited, err, "refused ", r)
		},
		Released: func(ctx context.Context, r string, tok fencepost.Token, held time.Duration) {
			j.note(ctx, held, nil, "released ", r, " ", tok)
		},
		Lost: func(ctx context.Context, r string, tok fencepost.Token, cause *fencepost.LostError) {
			j.note(ctx, 1, cause, "lost ", r, " ", tok)
			j.lost <- ctx
		},
		Stale: func(ctx context.Context, stale *fencepost.StaleError) {
			j.note(ctx, 1, stale, "stale ", stale.Resource)
		},
		ClaimWait: func(ctx context.Context, r string, tok fencepost.Token, took time.Duration) {
			j.note(ctx, took, nil, "claimed ", r, " ", tok)
		},
		Retried: func(ctx context.Context, rs []string, try int, err error) {
			j.note(ctx, 1, err, "retried ", rs, " ", try)
		},
		Settled: func(ctx context.Context, rs []string, took time.Duration, err error) {
			j.note(ctx, took, err, "settled ", rs)
		},
		OutcomeUnknown: func(ctx context.Context, rs []string, err error) { j.note(ctx, 1, err, "unknown ", rs) },
	}
}

// want compares the events that were reported, and forgets them. It returns their errors.
func (j *journal) want(told ...string) []error {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.told, told) {
		j.t.Errorf("told %q, want %q", j.told, told)
	}
	for i, took := range j.took {
		if took <= 0 {
			j.t.Errorf("%q took %v", j.told[i], took)
		}
	}
	errs := j.errs
	j.told, j.errs, j.took = nil, nil, nil
	return append(errs, make([]error, max(0, len(told)-len(errs)))...)
}

// A lease is reported when it is acquired and when it is released, once each, with its time.
func TestEventsTellOfAReleaseOnce(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(t)
			s, ctx := openStore(open[name], "-released", j.events()), span(t.Context())
			l, err := s.Acquire(ctx, "r", nil)
			if err != nil {
				t.Fatal(err)
			}
			j.want("claimed r 1", "acquired r 1")
			for range 2 {
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			j.want("released r 1")
			if err := s.Do(ctx, "r", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Error(err)
			}
			j.want("claimed r 2", "acquired r 2", "released r 2")
		})
	}
}

// An acquire that fails is reported with the error that the call returns. An acquire that is refused before anything is
// sent is not reported.
func TestEventsTellOfRefusedAcquires(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	b := setup(t, fencepost.Options{})
	acquire(t, b.another(t), "r", nil)
	b.opts.Events = j.events()
	s, ctx := b.another(t), span(t.Context())
	_, err := s.TryAcquire(ctx, "r", nil)
	errs := j.want("refused r")
	wantErr(t, err, fencepost.ErrHeld)
	wantErr(t, errs[0], err)

	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.Do(short, "r", setValue("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	wantErr(t, j.want("refused r")[0], fencepost.ErrHeld, context.DeadlineExceeded)

	wantErr(t, second(s.Acquire(ctx, "", nil)), fencepost.ErrInvalid)
	wantErr(t, second(s.Acquire(ctx, "q", &fencepost.AcquireOptions{TTL: 1})), fencepost.ErrInvalid)
	err = s.With(ctx, "q", nil, func(ctx context.Context, _ *fencepost.Lease) error {
		wantHeldByCaller(t, "Acquire", second(s.Acquire(ctx, "q", nil)))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	j.want("claimed q 1", "acquired q 1", "released q 1")

	url, err := redis.ParseURL(testenv.RedisURL(t))
	if err != nil {
		t.Fatal(err)
	}
	closed := redis.NewClient(url)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = fencepost.New(b.pool, closed, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, second(s.TryAcquire(ctx, "r", nil)), fencepost.ErrUnavailable)
	wantErr(t, j.want("refused r")[0], fencepost.ErrUnavailable)
}

// A refusal that a function passes on is reported once, and the namespace is cut off its resource once.
func TestEventsTellOfARefusalInsideATransactionOnce(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	b := setup(t, fencepost.Options{})
	b.opts.Events.Stale = j.events().Stale
	s, name := b.another(t), b.opts.Namespace+":r"
	l := acquire(t, s, name, nil)
	exec(t, b.pool, `UPDATE fencepost.fence SET token = token + 5`)
	err := s.Do(span(t.Context()), "other", func(ctx context.Context, _ pgx.Tx) error {
		return s.Tx(ctx, setValue("x"), l)
	})
	var stale *fencepost.StaleError
	if !errors.As(err, &stale) || stale.Resource != name {
		t.Errorf("got %v", err)
	}
	j.want("stale " + name)
}

// An AdvisoryTx reports each lease, with the time of the wait behind others of its process, and each wait that ended
// without a lease.
func TestEventsOfAnAdvisoryTx(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	pool, opts := onLocks(t)
	opts.Events = j.events()
	s, ctx := advisoryTx(t, pool, opts), span(t.Context())
	const short = time.Second
	err := s.Do(ctx, "r", func(context.Context, pgx.Tx) error {
		j.want("acquired r 1")
		other, cancel := context.WithTimeout(ctx, short)
		defer cancel()
		err := s.Do(other, "r", setValue("x"))
		wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded)
		if took := j.took[0]; took < short {
			t.Errorf("the wait took %v", took)
		}
		wantErr(t, j.want("refused r")[0], err)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	waiting, done := make(chan struct{}), make(chan error, 1)
	err = s.Do(ctx, "r", func(context.Context, pgx.Tx) error {
		go func() {
			close(waiting)
			done <- s.Do(ctx, "r", setValue("x"))
		}()
		<-waiting
		<-time.After(short)
		return nil
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Error(err)
	}
	if took := j.took[1]; took < short/2 {
		t.Errorf("the wait took %v", took)
	}
	j.want("acquired r 2", "acquired r 3")
}

// The event of a loss carries the values of the context that acquired the lease, though both have ended. No release is
// reported.
func TestEventsOfALossHaveAContextThatGoesOn(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(t)
			s := openStore(open[name], "-lost", j.events())
			ctx, cancel := context.WithCancel(span(t.Context()))
			l, err := s.Acquire(ctx, "r", nil)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			overtake(t, pool, l)
			wantErr(t, s.Tx(span(t.Context()), setValue("late"), l), fencepost.ErrStale)
			if told := <-j.lost; told.Err() != nil {
				t.Errorf("the handler's context has ended: %v", told.Err())
			}
			wantErr(t, l.Release(span(t.Context())), fencepost.ErrLost)
			j.mu.Lock()
			defer j.mu.Unlock()
			if slices.Contains(j.told, "released r 1") || !slices.Contains(j.told, "lost r 1") {
				t.Errorf("told %q", j.told)
			}
		})
	}
}

// The end of each transaction is reported once, after its runs, with the error that the call returns. A call that gets
// no lease has no transaction.
func TestEventsTellOfTransactions(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	b := setup(t, fencepost.Options{})
	b.opts.Events = fencepost.Events{
		Retried: j.events().Retried,
		Transacted: func(ctx context.Context, rs []string, took time.Duration, err error) {
			j.note(ctx, took, err, "transacted ", rs)
		},
	}
	s, ctx, calls, own := b.another(t), span(t.Context()), 0, errors.New("the function's own")
	leases := acquireAll(t, s, "a", "b")
	err := s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if calls++; calls < 2 {
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
			return err
		}
		return nil
	}, leases...)
	if errs := j.want("retried [a b] 1", "transacted [a b]"); err != nil || errs[1] != nil {
		t.Errorf("committed: %v, %v", err, errs)
	}
	err = s.Do(ctx, "c", func(context.Context, pgx.Tx) error { return own })
	wantErr(t, err, own)
	wantErr(t, j.want("transacted [c]")[0], own)
	_, err = fencepost.DoOnce(ctx, s, "c", "key", nil, func(context.Context, pgx.Tx) (int, error) { return 1, nil })
	if err != nil {
		t.Error(err)
	}
	if err := j.want("transacted [c]")[0]; err != nil {
		t.Error(err)
	}
	_, err = s.TryAcquire(ctx, "a", nil)
	wantErr(t, err, fencepost.ErrHeld)
	wantErr(t, s.Tx(ctx, nil, leases...), fencepost.ErrInvalid)
	j.want()

	pool, opts := onLocks(t)
	opts.Events = b.opts.Events
	if err := advisoryTx(t, pool, opts).Do(ctx, "d", setValue("x")); err != nil {
		t.Error(err)
	}
	j.want("transacted [d]")
}

// Each run that is repeated is reported, with its error.
func TestEventsTellOfRetries(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	b := setup(t, fencepost.Options{})
	b.opts.Events = fencepost.Events{Retried: j.events().Retried}
	s, ctx, calls := b.another(t), span(t.Context()), 0
	leases := acquireAll(t, s, "a", "b")
	err := s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if calls++; calls < 3 {
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
			return err
		}
		return nil
	}, leases...)
	if err != nil {
		t.Error(err)
	}
	for _, err := range j.want("retried [a b] 1", "retried [a b] 2") {
		if err == nil {
			t.Error("no error came along")
		}
	}
}

// If the reply to a COMMIT is lost, the event says how long it took to settle and how it ended. An outcome that stays
// unknown is reported as unknown.
func TestEventsTellOfSettlingAndOfWhatStaysUnknown(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	b := setup(t, fencepost.Options{})
	b.opts.Events = fencepost.Events{Settled: j.events().Settled, OutcomeUnknown: j.events().OutcomeUnknown}
	proxied, proxy := behindProxy(t, b)
	l, ctx := acquire(t, proxied, "invoice-1", nil), span(t.Context())

	dropped := proxy.DropNextReply(faults.Commit())
	if err := proxied.Tx(ctx, setValue("A"), l); err != nil {
		t.Error(err)
	}
	<-dropped
	if err := j.want("settled [invoice-1]")[0]; err != nil {
		t.Errorf("committed: %v", err)
	}

	dropped = proxy.DropNextRequest(faults.Commit())
	notCommitted(t, proxied.Tx(ctx, setValue("B"), l))
	<-dropped
	notCommitted(t, j.want("settled [invoice-1]")[0])

	dropped = proxy.DropNextReply(faults.Commit())
	err := proxied.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		beginAnotherIncarnation(t, b.pool)
		return setValue("C")(ctx, tx)
	}, l)
	<-dropped
	wantErr(t, err, fencepost.ErrOutcomeUnknown)
	for _, err := range j.want("settled [invoice-1]", "unknown [invoice-1]") {
		wantErr(t, err, fencepost.ErrOutcomeUnknown)
	}

	dropped = proxy.DropNextReply(faults.Containing("one round trip"))
	err = table(t, proxied).Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "one round trip"})
	<-dropped
	wantErr(t, err, fencepost.ErrOutcomeUnknown)
	wantErr(t, j.want("unknown [invoice-1]")[0], fencepost.ErrOutcomeUnknown)
}
