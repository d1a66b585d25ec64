package fencepost_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// acquireAll releases what it got when the test ends.
func acquireAll(t *testing.T, s *fencepost.Store, resources ...string) []*fencepost.Lease {
	t.Helper()
	leases, err := s.AcquireAll(t.Context(), resources, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { releaseAll(t, leases) })
	return leases
}

func releaseAll(t *testing.T, leases []*fencepost.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(context.Background()); err != nil && !errors.Is(err, fencepost.ErrLost) {
			t.Error(err)
		}
	}
}

// names returns the resources of leases, in the order of the leases.
func names(leases []*fencepost.Lease) []string {
	all := make([]string, 0, len(leases))
	for _, l := range leases {
		all = append(all, l.Resource())
	}
	return all
}

func TestAcquireAllSortsAndCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	leases := acquireAll(t, b.store, "invoice-2", "a", "invoice-1", "a", "B", "invoice-2")
	// Byte by byte: upper case comes first.
	if got := names(leases); !slices.Equal(got, []string{"B", "a", "invoice-1", "invoice-2"}) {
		t.Errorf("acquired %q", got)
	}
	if err := b.store.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
	for name, resources := range map[string][]string{"none": nil, "empty": {"a", ""}, "U+0000": {"b", "x\x00"}} {
		if _, err := b.store.AcquireAll(t.Context(), resources, nil); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !b.free(t, "b") {
		t.Error("a lease was acquired before another name was refused")
	}
}

// All or none: if one lease cannot be acquired, those already acquired are given back.
func TestAcquireAllHoldsNothingAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	acquire(t, b.another(t), "m", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	leases, err := b.store.AcquireAll(ctx, []string{"z", "m", "a", "b"}, nil)
	if wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded); leases != nil {
		t.Errorf("%d leases beside an error", len(leases))
	}
	for _, resource := range []string{"a", "b", "z"} {
		if !b.free(t, resource) {
			t.Errorf("%q is still held", resource)
		}
	}
}

// If a held lease is lost while the next one is waited for, the wait ends.
func TestAcquireAllNoticesALossMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	acquire(t, b.another(t), "b", nil)
	leases, err := b.store.AcquireAll(t.Context(), []string{"a", "b"}, shortLived)
	if wantErr(t, err, fencepost.ErrLost); leases != nil {
		t.Errorf("%d leases beside an error", len(leases))
	}
	if !b.free(t, "a") {
		t.Error("the lease that was lost is still there")
	}
}

// Eight goroutines with random sets, in random order, never wait for each other in a circle: neither for leases nor in
// their transactions, which take their locks in the same order.
func TestAcquireAllDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for range 15 {
				if err := useRandomSet(ctx, t, b.store, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func useRandomSet(ctx context.Context, t *testing.T, s *fencepost.Store, random *rand.Rand) error {
	t.Helper()
	var set []string
	for range 1 + random.IntN(4) {
		set = append(set, "r"+strconv.Itoa(random.IntN(5)))
	}
	leases, err := s.AcquireAll(ctx, set, nil)
	if err != nil {
		return err
	}
	defer releaseAll(t, leases)
	random.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
	calls := 0
	err = s.Tx(ctx, func(context.Context, pgx.Tx) error {
		calls++
		return nil
	}, leases...)
	if calls > 1 {
		t.Errorf("the transaction over %q ran %d times", names(leases), calls)
	}
	return err
}
