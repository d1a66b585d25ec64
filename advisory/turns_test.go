package advisory_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/fencepost-pg/fencepost/advisory"
)

func TestTurnsComeInTheOrderOfTheLine(t *testing.T) {
	t.Parallel()
	var turns advisory.Turns
	first, err := turns.Take(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := turns.Try(t.Context(), 8); err != nil {
		t.Error("another key is taken")
	} else {
		other.Done()
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			turn, err := turns.Take(t.Context(), 7)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			turn.Done()
		})
		for turns.Waiting(7) != i+1 {
			runtime.Gosched()
		}
	}
	first.Done()
	first.Done() // no second time
	wg.Wait()
	for i, who := range order {
		if i != who {
			t.Fatalf("the order was %v", order)
		}
	}
	if turn, err := turns.Try(t.Context(), 7); err != nil {
		t.Error("the line did not end")
	} else {
		turn.Done()
	}
}

// Whoever gives up, before or just as the turn comes, keeps it from nobody.
func TestATurnGivenUpPassesOn(t *testing.T) {
	t.Parallel()
	var turns advisory.Turns
	first, err := turns.Try(t.Context(), 1)
	if err != nil {
		t.Fatal("the first has no turn")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.Take(gone, 1); !errors.Is(err, context.Canceled) || turns.Waiting(1) != 0 {
		t.Errorf("%d wait, %v", turns.Waiting(1), err)
	}
	turns.LeaveAsCalled(first, 1)
	if _, err := turns.Try(t.Context(), 1); err != nil {
		t.Error("the turn was lost")
	}
}

// I9: to have the turn is not to hold the lock. The others are told what whoever has the turn has met, and that nothing is known before that.
func TestInvariant9_ATurnTellsWhatWasMetLast(t *testing.T) {
	t.Parallel()
	var turns advisory.Turns
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	first, err := turns.Take(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want, not error) {
		t.Helper()
		for range 3 {
			_, err := turns.Take(gone, 1)
			if !errors.Is(err, want) || !errors.Is(err, context.Canceled) || errors.Is(err, not) {
				t.Errorf("take: %v", err)
			}
			if _, err := turns.Try(t.Context(), 1); !errors.Is(err, want) || errors.Is(err, not) {
				t.Errorf("try: %v", err)
			}
		}
	}
	_, err = turns.Try(gone, 1)
	wantErr(t, err, advisory.ErrUnavailable, context.Canceled)
	_, err = turns.Take(gone, 1)
	wantErr(t, err, advisory.ErrUnavailable, context.Canceled)
	first.Met(&advisory.HeldError{Resource: "r"})
	check(advisory.ErrHeld, advisory.ErrUnavailable)
	first.Met(advisory.ErrUnavailable)
	check(advisory.ErrUnavailable, advisory.ErrHeld)
	// Who has the turn next has met nothing himself: whoever tries waits for his word.
	next := make(chan *advisory.Turn)
	go func() {
		turn, err := turns.Take(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		next <- turn
	}()
	for turns.Waiting(1) != 1 {
		runtime.Gosched()
	}
	first.Done()
	first.Met(&advisory.HeldError{Resource: "late"})
	second := <-next
	wantErr(t, second.Last(), advisory.ErrUnavailable)
	_, err = turns.Try(gone, 1)
	wantErr(t, err, context.Canceled)
	second.Met(&advisory.HeldError{Resource: "r"})
	check(advisory.ErrHeld, advisory.ErrUnavailable)
	second.Done()
}
