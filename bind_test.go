package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
)

type bindKey struct{}

// Either the caller's context or the lease ends the bound context, and its cause says which one did.
func TestBindEndsWithEitherAndSaysWhich(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "r", nil)
	stopped := errors.New("the service stops")
	outer, stop := context.WithCancelCause(context.WithValue(t.Context(), bindKey{}, "value"))
	bound, cancel := l.Bind(outer)
	defer cancel()
	if bound.Err() != nil || bound.Value(bindKey{}) != "value" {
		t.Errorf("bound: %v, value %v", bound.Err(), bound.Value(bindKey{}))
	}
	if carried, ok := fencepost.FromContext(bound); !ok || carried != l {
		t.Error("the bound context does not carry the lease")
	}
	stop(stopped)
	wantCause(t, bound, stopped)

	bound, cancel = l.Bind(t.Context())
	defer cancel()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCause(t, bound, fencepost.ErrLost, fencepost.ErrReleased)
}

// wantCause waits for the end of a context.
func wantCause(t *testing.T, ctx context.Context, causes ...error) { //nolint:revive // t comes first in tests
	t.Helper()
	select {
	case <-ctx.Done():
		wantErr(t, context.Cause(ctx), causes...)
	case <-time.After(10 * time.Second):
		t.Fatal("the context does not end")
	}
}

// Under a lease that is over no work begins.
func TestBindOfALeaseThatIsOverHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquireBriefly(t, "r")
	<-l.Done()
	bound, cancel := l.Bind(t.Context())
	defer cancel()
	if bound.Err() == nil {
		t.Error("the bound context goes on")
	}
	wantErr(t, context.Cause(bound), fencepost.ErrLost)
}

// cancel ends the bound context, and the lease goes on.
func TestBindsCancelDoesNotReleaseTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "r", nil)
	bound, cancel := l.Bind(t.Context())
	cancel()
	if wantCause(t, bound, context.Canceled); l.Err() != nil {
		t.Errorf("the lease: %v", l.Err())
	}
}

// The control: a context that is not bound outlives the lease.
func TestBindControl_WithoutItTheContextGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquireBriefly(t, "r")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	<-l.Done()
	if ctx.Err() != nil {
		t.Error("it ended with the lease")
	}
}
