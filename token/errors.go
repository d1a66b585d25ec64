package token

import (
	"errors"
	"fmt"
	"time"
)

// The outcomes that more than one layer can meet. Each layer exports them under its own name (lease.ErrUnavailable and
// fence.ErrUnavailable are this value), so errors.Is matches them whichever layer returned them.
var (
	// ErrInvalid: the call was refused before any network traffic, because of its arguments.
	ErrInvalid = errors.New("fencepost: invalid")
	// ErrUnavailable: the backend could not answer, or refused for reasons of its own. It says
	// nothing about who holds the lease or whether the token is good.
	ErrUnavailable = errors.New("fencepost: unavailable")
	// ErrHeld: somebody else holds the lease; the backend answered.
	ErrHeld = errors.New("fencepost: held by another")
	// ErrLost: this handle no longer owns the lease.
	ErrLost = errors.New("fencepost: lease lost")
	// ErrReleased: the cause of a lease context that ended because the holder released the lease.
	// A call under such a lease returns a *LostError that matches both.
	ErrReleased = errors.New("fencepost: lease released")
)

// HeldError says who holds a lease, and for how much longer.
type HeldError struct {
	Resource string
	TTL      time.Duration // what remained when the backend answered; 0 if unknown
	Label    string        // the holder's label
}

func (e *HeldError) Error() string {
	text := fmt.Sprintf("%v: %q by %q", ErrHeld, e.Resource, e.Label)
	if e.TTL > 0 {
		text += fmt.Sprintf(", for another %v", e.TTL)
	}
	return text
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Reason says why a lease was lost. Each kind of lease has its own reasons.
type Reason string

// LostError says why a handle no longer owns its lease.
type LostError struct {
	Resource string
	Token    Token
	Reason   Reason
	Err      error // the underlying error, if any
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("%v: %q, token %d: %s", ErrLost, e.Resource, e.Token, e.Reason)
	if e.Err != nil && !errors.Is(e.Err, ErrReleased) {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the underlying error.
func (e *LostError) Unwrap() error { return e.Err }
