package fencepost_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

type withFunc = func(ctx context.Context, l *fencepost.Lease) error

// withLeases runs a test over each kind of store whose leases can be held.
func withLeases(t *testing.T, test func(t *testing.T, s *fencepost.Store, free func(t *testing.T) bool)) {
	t.Helper()
	_, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		s, other := openStore(open[name], ""), openStore(open[name], "")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s, func(t *testing.T) bool {
				t.Helper()
				l, err := other.TryAcquire(t.Context(), "r", nil)
				if err != nil {
					return false
				}
				return l.Release(context.Background()) == nil
			})
		})
	}
}

// However the function ends, the lease is free when With has returned, and the function's outcome is not replaced.
func TestWithReleasesHoweverTheWorkEnds(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, free func(t *testing.T) bool) {
		t.Helper()
		why := errors.New("the work failed")
		ctx, cancel := context.WithCancel(t.Context())
		with := func(fn withFunc) error { return s.With(ctx, "r", nil, fn) }
		for _, way := range []struct {
			name string
			run  func() error
		}{
			{"nil", func() error { return with(func(context.Context, *fencepost.Lease) error { return nil }) }},
			{"error", func() error { return with(func(context.Context, *fencepost.Lease) error { return why }) }},
			{"panic", func() (err error) {
				defer func() { err, _ = recover().(error) }()
				return with(func(context.Context, *fencepost.Lease) error { panic(why) })
			}},
			{"goexit", func() error {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = with(func(context.Context, *fencepost.Lease) error { runtime.Goexit(); return nil })
				}()
				<-ended
				return why
			}},
			{"released by the function", func() error {
				return with(func(ctx context.Context, l *fencepost.Lease) error { return errors.Join(why, l.Release(ctx)) })
			}},
			{"cancelled", func() error {
				return with(func(ctx context.Context, _ *fencepost.Lease) error {
					cancel()
					<-ctx.Done()
					return errors.Join(why, ctx.Err())
				})
			}},
		} {
			err := way.run()
			if (way.name == "nil") != (err == nil) || err != nil && !errors.Is(err, why) || errors.Is(err, fencepost.ErrLost) {
				t.Errorf("%s: got %v", way.name, err)
			}
			if !free(t) {
				t.Errorf("%s: the lease is still there", way.name)
			}
		}
	})
}

// The function works under its lease: the context carries it, and transactions under it commit.
func TestWithRunsUnderTheLease(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, free func(t *testing.T) bool) {
		t.Helper()
		opts := &fencepost.AcquireOptions{Label: "nightly"}
		err := s.With(t.Context(), "r", opts, func(ctx context.Context, l *fencepost.Lease) error {
			if carried, ok := fencepost.FromContext(ctx); !ok || carried != l || free(t) {
				t.Error("the function does not run under its lease")
			}
			again := func(context.Context, *fencepost.Lease) error { return nil }
			wantHeldByCaller(t, "With in With", s.With(ctx, "r", nil, again))
			return s.Tx(ctx, setValue("with"), l)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// If a lease was lost while the function ran, the call is no success, even if the function returns nil.
func TestWithTellsOfALossWhileItRan(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	why := errors.New("the work failed")
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		s := openStore(open[name], "")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, result := range []error{nil, why, fencepost.ErrOutcomeUnknown} {
				err := s.With(t.Context(), "r", nil, func(ctx context.Context, l *fencepost.Lease) error {
					overtake(t, pool, l)
					wantErr(t, s.Tx(ctx, setValue("late"), l), fencepost.ErrStale) // which ends the lease
					wantCause(t, ctx, fencepost.ErrLost)
					return result
				})
				if errors.Is(result, fencepost.ErrOutcomeUnknown) {
					if wantErr(t, err, result); errors.Is(err, fencepost.ErrLost) {
						t.Errorf("what is unknown stands alone: %v", err)
					}
					continue
				}
				if wantErr(t, err, fencepost.ErrLost, fencepost.ErrStale); !errors.Is(err, result) && result != nil {
					t.Errorf("the function's own error is not to be seen in %v", err)
				}
			}
		})
	}
}

// The control: a lease that lasts until the function has returned is no loss.
func TestWithControl_ALeaseThatLastsIsNoLoss(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, _ func(t *testing.T) bool) {
		t.Helper()
		if err := s.With(t.Context(), "r", nil, func(context.Context, *fencepost.Lease) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestWithNeedsAFunctionAndAResource(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	wantErr(t, b.store.With(t.Context(), "r", nil, nil), fencepost.ErrInvalid)
	never := func(context.Context, *fencepost.Lease) error { t.Error("the function ran"); return nil }
	wantErr(t, b.store.With(t.Context(), "", nil, never), fencepost.ErrInvalid)
	acquire(t, b.another(t), "r", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, b.store.With(ctx, "r", nil, never), context.Canceled)
}

// The shutdown of docs/operating.md: the service's context ends, the workers return, and their leases are free at once.
func TestAShutdownReleasesEveryLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers, began sync.WaitGroup
	resources := []string{"a", "b", "c", "d"}
	began.Add(len(resources))
	for _, resource := range resources {
		workers.Go(func() {
			err := b.store.With(ctx, resource, nil, func(ctx context.Context, _ *fencepost.Lease) error {
				began.Done()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if wantErr(t, err, context.Canceled); errors.Is(err, fencepost.ErrLost) {
				t.Errorf("%q: %v", resource, err)
			}
		})
	}
	began.Wait()
	stop()
	workers.Wait()
	for _, resource := range resources {
		if !b.free(t, resource) {
			t.Errorf("%q is still held", resource)
		}
	}
}

// FullName returns the name that the fence has, and that the SQL functions take.
func TestFullNameIsTheNameOfTheFence(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	full, err := b.store.FullName("invoice-1")
	if err != nil || full != l.Claim().Resource {
		t.Errorf("full name %q, %v; the claim is of %q", full, err, l.Claim().Resource)
	}
	err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		c := l.Claim()
		_, err := tx.Exec(ctx, `SELECT fencepost.enter($1, $2, $3::text::uuid)`, full, int64(c.Token), c.Nonce.Hex())
		return err
	}, l)
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "x\x00", string(make([]byte, 600))} {
		if _, err := b.store.FullName(bad); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
