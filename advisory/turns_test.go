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
	if _, ok := turns.Try(7); ok {
		t.Error("two have the turn")
	}
	if other, ok := turns.Try(8); !ok {
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
	if turn, ok := turns.Try(7); !ok {
		t.Error("the line did not end")
	} else {
		turn.Done()
	}
}

// Whoever gives up, before or just as the turn comes, keeps it from nobody.
func TestATurnGivenUpPassesOn(t *testing.T) {
	t.Parallel()
	var turns advisory.Turns
	first, ok := turns.Try(1)
	if !ok {
		t.Fatal("the first has no turn")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.Take(gone, 1); !errors.Is(err, context.Canceled) || turns.Waiting(1) != 0 {
		t.Errorf("%d wait, %v", turns.Waiting(1), err)
	}
	turns.LeaveAsCalled(first, 1)
	if _, ok := turns.Try(1); !ok {
		t.Error("the turn was lost")
	}
}
