package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost-pg/fencepost"
)

// The outcome that decides whether the work may be repeated comes before what happened to the lease.
func TestStatusOfAnError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fencepost.ErrInvalid, 2},
		{fmt.Errorf("x: %w", fencepost.ErrUnavailable), 69},
		{errors.Join(fencepost.ErrUnavailable, &fencepost.HeldError{}), 75},
		{&fencepost.FenceBusyError{}, 75},
		{fencepost.ErrKeyReused, 77},
		{refused(errors.New("x")), 77},
		{&fencepost.LostError{}, 79},
		{&fencepost.LostError{Err: &fencepost.StaleError{}}, 80},
		{errors.Join(&fencepost.LostError{}, fencepost.ErrOutcomeUnknown), 81},
		{&statusError{status: 143}, 143},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("%v: status %d, want %d", tt.err, got, tt.want)
		}
	}
}
