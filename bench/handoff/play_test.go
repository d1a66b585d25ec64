package handoff

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// mutex is a lock that works, within one process.
func mutex(n int) []Lock {
	held := make(chan struct{}, 1)
	return slices.Repeat([]Lock{func(ctx context.Context) (func(context.Context) error, error) {
		select {
		case held <- struct{}{}:
			return func(context.Context) error { <-held; return nil }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, n)
}

func brief() Plan {
	return Plan{Rounds: 1, Slice: 30 * time.Millisecond, Hold: time.Millisecond, Pause: time.Millisecond}
}

func TestEveryClientGetsTurns(t *testing.T) {
	t.Parallel()
	played, err := play(t.Context(), brief(), mutex(3))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(played.turns, func(a, b turn) int { return a.got.Compare(b.got) })
	had := map[int]int{}
	for i, x := range played.turns {
		had[x.client]++
		if x.got.Before(x.asked) || x.leaving.Before(x.got) || i > 0 && x.got.Before(played.turns[i-1].leaving) {
			t.Errorf("turn %d is out of order: %+v", i, x)
		}
	}
	if len(had) != 3 || played.stranded != 0 {
		t.Errorf("clients had %v turns and %d were left waiting, want some each and nobody", had, played.stranded)
	}
}

// A lock that does not exclude gets no figures.
func TestALockThatTwoHoldIsAnError(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	open := func(context.Context) (func(context.Context) error, error) {
		both.Done()
		both.Wait()
		return func(context.Context) error { return nil }, nil
	}
	p := brief()
	p.Hold, p.Pause = time.Minute, time.Minute // the error must end it
	_, err := Compare(t.Context(), p, []Candidate{{Name: "open protection", Clients: []Lock{open, open}}})
	if !errors.Is(err, ErrShared) || !strings.Contains(err.Error(), "open protection") {
		t.Errorf("got error %v, want %v of the candidate", err, ErrShared)
	}
}

// A lock that is handed to nobody costs its own candidate the slice, and no other.
func TestAClientLeftWaitingIsCounted(t *testing.T) {
	t.Parallel()
	never := func(ctx context.Context) (func(context.Context) error, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p := brief()
	p.Slice = -grace // all waiting is over at once
	played, err := play(t.Context(), p, []Lock{never})
	if err != nil || played.stranded != 0 {
		t.Errorf("a slice that is over before it began: %+v, %v", played, err)
	}
	p.Slice = time.Millisecond
	played, err = play(t.Context(), p, append(mutex(1), never))
	if err != nil || played.stranded != 1 {
		t.Errorf("got %d left waiting and error %v, want 1 and none", played.stranded, err)
	}
}

func TestAFailedCallEndsTheComparison(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func(context.Context) (func(context.Context) error, error) { return nil, broken }
	p := brief()
	p.Slice = time.Minute
	if _, err := Compare(
		t.Context(),
		p,
		[]Candidate{{Name: "x", Clients: append(mutex(2), fails)}},
	); !errors.Is(
		err,
		broken,
	) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}

func TestTheContextEndsTheComparison(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, brief(), []Candidate{{Clients: mutex(2)}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}
