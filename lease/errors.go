package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes of this package. Compare with errors.Is.
var (
	// ErrInvalid: refused before any command was sent: a resource name, TTL or option out of range.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: Redis could not answer, or refused for reasons of its own (READONLY, OOM,
	// LOADING, a key it cannot use). It says nothing about who holds the lease.
	ErrUnavailable = token.ErrUnavailable
	// ErrHeld: somebody else holds the lease. The error is a *HeldError.
	ErrHeld = token.ErrHeld
	// ErrLost: this handle no longer owns the lease. The error is a *LostError.
	ErrLost = token.ErrLost
	// ErrReleased: the cause of a lease context that ended because the holder released the lease.
	// A call under such a lease returns a *LostError that matches both.
	ErrReleased = token.ErrReleased
	// ErrBadKey: a key that the lease needs holds what this library did not write, so waiting for
	// it would have no end. The error is a *BadKeyError, which matches ErrUnavailable as well.
	ErrBadKey = errors.New("fencepost: unusable redis key")
)

// HeldError says who holds a lease, and for how long yet. Its label is "reserved" where the head of the queue has
// been told to come.
type HeldError = token.HeldError

// inLine is a HeldError with the caller's place in the queue.
type inLine struct {
	*HeldError
	place int // from 0; -1 where the caller does not wait
}

// Unwrap returns what the caller sees of it.
func (e *inLine) Unwrap() error { return e.HeldError }

// Reason says why a lease was lost.
type Reason = token.Reason

// The reasons for which a lease is lost.
const (
	// ReasonExpired: the deadline passed without a confirmed renewal, or the key was gone.
	ReasonExpired Reason = "expired"
	// ReasonTaken: the key carries another holder's nonce.
	ReasonTaken Reason = "taken by another"
	// ReasonUnreachable: the deadline passed while renewals failed or had no answer; Err has the last failure, if any.
	ReasonUnreachable Reason = "server unreachable"
	// ReasonClock: the monotonic clock alone would have kept the lease, but the host's wall clock
	// stepped forward or the host was suspended.
	ReasonClock Reason = "clock"
	// ReasonMaxHold: the lease was held for as long as AcquireOptions.MaxHold allows.
	ReasonMaxHold Reason = "held for the longest time allowed"
	// ReasonStalled: the work did not call Progress in time, so the lease was not renewed.
	ReasonStalled Reason = "no progress"
	// ReasonReleased: the holder released it.
	ReasonReleased Reason = "released"
)

// LostError says why a handle no longer owns its lease.
type LostError = token.LostError

// BadKeyError names a Redis key that cannot be used as it stands, and why.
type BadKeyError struct {
	Resource string
	Key      string
	Why      string
}

func (e *BadKeyError) Error() string {
	return fmt.Sprintf("%v: %s is %s", ErrBadKey, e.Key, e.Why)
}

// Is reports whether target is [ErrBadKey] or [ErrUnavailable].
func (e *BadKeyError) Is(target error) bool { return target == ErrBadKey || target == ErrUnavailable }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// interpret turns what go-redis returned into this package's outcomes: whatever kept Redis from
// carrying the script out is ErrUnavailable, and where the caller's context has ended, that shows
// as well.
func interpret(ctx context.Context, verb, resource string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(err, ended)
	}
	return fmt.Errorf("%w: %s %q: %w", ErrUnavailable, verb, resource, err)
}

// mayHaveGranted reports whether an acquire that failed may have been carried out all the same: go-redis tries
// again by itself, and its last error says nothing of an earlier try whose reply was lost. Nothing was granted where
// the script has the last word, since it looks for the caller's own nonce first, even if it is then not allowed to write.
func mayHaveGranted(err error) bool {
	if errors.Is(err, errUnconfirmed) {
		return true
	}
	if errors.Is(err, errNotSent) || errors.Is(err, ErrHeld) || errors.Is(err, ErrBadKey) {
		return false
	}
	return !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "OOM") && !redis.HasErrorPrefix(err, "NOREPLICAS")
}
