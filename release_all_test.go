package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost"
)

func TestReleaseAllReleasesEachOfThem(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	leases, err := b.store.AcquireAll(t.Context(), []string{"a", "b", "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // which is no reason to keep them
	if err := fencepost.ReleaseAll(ended, append(leases, nil)...); err != nil {
		t.Error(err)
	}
	for _, resource := range []string{"a", "b", "c"} {
		if !b.free(t, resource) {
			t.Errorf("%q is still held", resource)
		}
	}
	if err := fencepost.ReleaseAll(t.Context(), leases...); err != nil {
		t.Errorf("called again: %v", err)
	}
	if err := fencepost.ReleaseAll(t.Context()); err != nil {
		t.Errorf("without a lease: %v", err)
	}
}

// A lost lease is reported on one line, and the others are still released.
func TestReleaseAllGoesOnAfterALoss(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	leases, err := b.store.AcquireAll(t.Context(), []string{"a", "b", "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases[1:] {
		overtake(t, b.pool, l)
		wantErr(t, b.store.Tx(t.Context(), setValue("late"), l), fencepost.ErrStale)
	}
	err = fencepost.ReleaseAll(t.Context(), leases...)
	wantErr(t, err, fencepost.ErrLost)
	var lost *fencepost.LostError
	if !errors.As(err, &lost) || lost.Resource != "c" || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("got %v", err)
	}
	wantOneLine(t, err)
	if !b.free(t, "a") {
		t.Error("the one that was not lost is still held")
	}
}
