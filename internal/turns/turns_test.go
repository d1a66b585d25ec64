package turns_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/turns"
	"github.com/fencepost-pg/fencepost/token"
)

func TestTurnsComeInTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	var all turns.Turns
	first, err := all.Take(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := all.Try(t.Context(), 8); err != nil {
		t.Error("another key is taken")
	} else {
		other.Done()
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			turn, err := all.Take(t.Context(), 7)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			turn.Done()
		})
		for all.Waiting(7) != i+1 {
			runtime.Gosched()
		}
	}
	first.Done()
	first.Done() // a second call does nothing
	wg.Wait()
	for i, who := range order {
		if i != who {
			t.Fatalf("the order was %v", order)
		}
	}
	if turn, err := all.Try(t.Context(), 7); err != nil {
		t.Error("the line did not end")
	} else {
		turn.Done()
	}
}

// A goroutine that gives up, before or just as the turn comes, keeps the turn from nobody.
func TestATurnGivenUpPassesOn(t *testing.T) {
	t.Parallel()
	var all turns.Turns
	first, err := all.Try(t.Context(), 1)
	if err != nil {
		t.Fatal("the first has no turn")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Take(gone, 1); !errors.Is(err, context.Canceled) || all.Waiting(1) != 0 {
		t.Errorf("%d wait, %v", all.Waiting(1), err)
	}
	all.LeaveAsCalled(first, 1)
	if _, err := all.Try(t.Context(), 1); err != nil {
		t.Error("the turn was lost")
	}
}

// I9: having the turn is not holding the lock. The others get the outcome of the goroutine that has the turn, and learn
// that nothing is known before that.
func TestInvariant9_ATurnTellsWhatWasMetLast(t *testing.T) {
	t.Parallel()
	var all turns.Turns
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	first, err := all.Take(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want, not error) {
		t.Helper()
		for range 3 {
			_, err := all.Take(gone, 1)
			if !errors.Is(err, want) || !errors.Is(err, context.Canceled) || errors.Is(err, not) {
				t.Errorf("take: %v", err)
			}
			if _, err := all.Try(t.Context(), 1); !errors.Is(err, want) || errors.Is(err, not) {
				t.Errorf("try: %v", err)
			}
		}
	}
	_, err = all.Try(gone, 1)
	wantErr(t, err, token.ErrUnavailable, context.Canceled)
	_, err = all.Take(gone, 1)
	wantErr(t, err, token.ErrUnavailable, context.Canceled)
	first.Met(&token.HeldError{Resource: "r"})
	check(token.ErrHeld, token.ErrUnavailable)
	first.Met(token.ErrUnavailable)
	check(token.ErrUnavailable, token.ErrHeld)
	// The goroutine that has the turn next has no outcome of its own yet: a goroutine that tries waits for it.
	next := make(chan *turns.Turn)
	go func() {
		turn, err := all.Take(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		next <- turn
	}()
	for all.Waiting(1) != 1 {
		runtime.Gosched()
	}
	first.Done()
	first.Met(&token.HeldError{Resource: "late"})
	second := <-next
	wantErr(t, second.Last(), token.ErrUnavailable)
	_, err = all.Try(gone, 1)
	wantErr(t, err, context.Canceled)
	second.Met(&token.HeldError{Resource: "r"})
	check(token.ErrHeld, token.ErrUnavailable)
	second.Done()
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}
