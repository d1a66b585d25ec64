package fencepost

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// I9: a slot that was held, and could not be asked again because ctx ended, counts as held. Any other error replaces
// the earlier outcome.
func TestInvariant9_TheEndOfCtxDoesNotTurnAHeldSlotIntoAnUnavailableOne(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unavailable := fmt.Errorf("%w: %w", ErrUnavailable, context.Canceled)
	for name, tt := range map[string]struct {
		ended           bool
		before, err     error
		held, cancelled bool
	}{
		"held, and ctx ended":           {true, ErrHeld, unavailable, true, true},
		"held, and Redis did not reply": {false, ErrHeld, ErrUnavailable, false, false},
		"unavailable before":            {true, ErrUnavailable, unavailable, false, true},
		"not asked before":              {true, nil, unavailable, false, true},
		"held by another by then":       {true, ErrUnavailable, ErrHeld, true, false},
	} {
		s := slot{met: tt.before}
		ctx := t.Context()
		if tt.ended {
			ctx = ended
		}
		s.meet(ctx, tt.err)
		if errors.Is(s.met, ErrHeld) != tt.held || errors.Is(s.met, ErrUnavailable) == tt.held ||
			errors.Is(s.met, context.Canceled) != tt.cancelled {
			t.Errorf("%s: %v", name, s.met)
		}
	}
}
