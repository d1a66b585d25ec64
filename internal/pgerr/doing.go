package pgerr

import (
	"errors"
	"slices"
	"strings"

	"github.com/fencepost-pg/fencepost/token"
)

func outcomes() []error {
	return []error{
		ErrInvalid, ErrUnavailable, ErrStale, ErrTokenSpent, ErrNotFound, ErrExists, ErrRefused, ErrOutcomeUnknown,
		ErrKeyReused, ErrJump, ErrTable, token.ErrHeld, token.ErrLost,
	}
}

// IsOutcome reports whether err is one of the outcomes, and not an error of the caller's own SQL.
func IsOutcome(err error) bool {
	return slices.ContainsFunc(outcomes(), func(outcome error) bool { return errors.Is(err, outcome) })
}

// Doing adds to the text of an error what was being done, behind the outcome with which the text begins:
// "fencepost: unavailable: read the catalog: ...". The error matches what it did.
func Doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return &doing{what: what, err: err}
}

type doing struct {
	what string
	err  error
}

func (e *doing) Error() string {
	text := e.err.Error()
	for _, outcome := range outcomes() {
		if why, ok := strings.CutPrefix(text, outcome.Error()+": "); ok {
			return outcome.Error() + ": " + e.what + ": " + why
		}
	}
	return e.what + ": " + text
}

func (e *doing) Unwrap() error { return e.err }
