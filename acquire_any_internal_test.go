package fencepost

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// I9: a slot that was held, and could not be asked again because ctx ended, stays held. Any other error replaces what
// was met before.
func TestInvariant9_TheEndOfCtxDoesNotTurnAHeldSlotIntoAnUnavailableOne(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unavailable := fmt.Errorf("%w: %w", ErrUnavailable, context.Canceled)
	for name, tt := range map[string]struct {
		ctx             context.Context
		before, err     error
		held, cancelled bool
	}{
		"held, and ctx ended":           {ended, ErrHeld, unavailable, true, true},
		"held, and Redis did not reply": {t.Context(), ErrHeld, ErrUnavailable, false, false},
		"unavailable before":            {ended, ErrUnavailable, unavailable, false, true},
		"not asked before":              {ended, nil, unavailable, false, true},
		"held by another by then":       {ended, ErrUnavailable, ErrHeld, true, false},
	} {
		s := slot{met: tt.before}
		s.meet(tt.ctx, tt.err)
		if errors.Is(s.met, ErrHeld) != tt.held || errors.Is(s.met, ErrUnavailable) == tt.held ||
			errors.Is(s.met, context.Canceled) != tt.cancelled {
			t.Errorf("%s: %v", name, s.met)
		}
	}
}
