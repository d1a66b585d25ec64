package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-pg/fencepost"
)

// busy returns a store of each kind. Another store of that kind holds its lease "r".
func busy(t *testing.T, test func(t *testing.T, s *fencepost.Store)) {
	t.Helper()
	_, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		s, other := openStore(open[name], ""), openStore(open[name], "")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acquire(t, other, "r", nil)
			test(t, s)
		})
	}
}

// Each of these calls returns ErrHeld at once. A call that waited would wait for ever, because its context does not
// end.
func TestNoWaitIsHeldAtOnce(t *testing.T) {
	t.Parallel()
	busy(t, func(t *testing.T, s *fencepost.Store) {
		t.Helper()
		noWait := &fencepost.AcquireOptions{NoWait: true}
		never := func(context.Context, *fencepost.Lease) error { t.Error("the work ran"); return nil }
		for name, err := range map[string]error{
			"Acquire":    second(s.Acquire(t.Context(), "r", noWait)),
			"With":       s.With(t.Context(), "r", noWait, never),
			"AcquireAll": second(s.AcquireAll(t.Context(), []string{"a", "r"}, noWait)),
			"AcquireAny": second(s.AcquireAny(t.Context(), []string{"r"}, noWait)),
		} {
			if wantErr(t, err, fencepost.ErrHeld); errors.Is(err, fencepost.ErrUnavailable) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		acquire(t, s, "a", noWait) // was given back by AcquireAll
	})
}

// The control: without NoWait Acquire waits until ctx ends.
func TestNoWaitControl_WithoutItAcquireWaits(t *testing.T) {
	t.Parallel()
	busy(t, func(t *testing.T, s *fencepost.Store) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitsFor)
		defer cancel()
		err := second(s.Acquire(ctx, "r", &fencepost.AcquireOptions{NoWait: false}))
		wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded)
	})
}

// A free resource is acquired, and of several resources the one that is free.
func TestNoWaitTakesWhatIsFree(t *testing.T) {
	t.Parallel()
	busy(t, func(t *testing.T, s *fencepost.Store) {
		t.Helper()
		l, err := s.AcquireAny(t.Context(), []string{"r", "free"}, &fencepost.AcquireOptions{NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		if l.Resource() != "free" {
			t.Errorf("got %q", l.Resource())
		}
		if err := fencepost.ReleaseAll(t.Context(), l); err != nil {
			t.Error(err)
		}
	})
}
