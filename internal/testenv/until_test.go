package testenv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestUntilAsksUntilTheAnswerIsTrue(t *testing.T) {
	t.Parallel()
	asked := 0
	err := testenv.Until(t.Context(), func(context.Context) (bool, error) {
		asked++
		return asked == 3, nil
	})
	if err != nil || asked != 3 {
		t.Errorf("asked %d times, error %v; want 3 and none", asked, err)
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := testenv.Until(ctx, func(context.Context) (bool, error) { return false, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that of the context", err)
	}
}

func TestUntilEndsWithTheErrorOfAQuestion(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	err := testenv.Until(t.Context(), func(context.Context) (bool, error) { return true, broken })
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want that of the question", err)
	}
}
