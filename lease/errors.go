package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes of this package. Compare with errors.Is.
var (
	// ErrInvalid: refused before any command was sent, because a resource name, TTL or option is out of range.
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
	// ErrBadKey: a key that the lease needs holds something that this library did not write, so waiting for it would
	// never end. The error is a *BadKeyError, which also matches ErrUnavailable.
	ErrBadKey = errors.New("fencepost: unusable redis key")
)

// HeldError says who holds a lease and for how much longer. Its label is "reserved" if the head of the queue has been
// told to come.
type HeldError = token.HeldError

// Reason says why a lease was lost.
type Reason = token.Reason

// The reasons for which a lease is lost.
const (
	// ReasonExpired: the deadline passed without a confirmed renewal.
	ReasonExpired Reason = "expired"
	// ReasonGone: the key disappeared early: it was deleted or evicted, or Redis lost its data.
	ReasonGone Reason = "gone before its time"
	// ReasonTaken: the key carries another holder's nonce.
	ReasonTaken Reason = "taken by another"
	// ReasonUnreachable: the deadline passed while renewals failed or were unanswered; Err is the last failure, if any.
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

// interpret turns go-redis errors into this package's outcomes. Whatever kept Redis from running the script is
// ErrUnavailable. If the caller's context has ended, the error matches that too.
func interpret(ctx context.Context, verb, resource string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	return fmt.Errorf("%w: %s %q: %w", ErrUnavailable, verb, resource, err)
}

// mayHaveGranted reports whether a failed acquire may have granted the lease anyway: go-redis retries by itself, and
// its last error says nothing about an earlier try whose reply was lost. Nothing was granted if the error comes from
// the script, which looks for the caller's own nonce first, even if it is then not allowed to write.
func mayHaveGranted(err error) bool {
	if errors.Is(err, errNotDurable) {
		return true
	}
	if errors.Is(err, errNotSent) || errors.Is(err, ErrHeld) || errors.Is(err, ErrBadKey) {
		return false
	}
	return !hasCode(err, "READONLY") && !hasCode(err, "OOM") && !hasCode(err, "NOREPLICAS")
}

// hasCode reports whether the server refused a script with this error code. Redis before version 7 prefixes the
// location to the refusal of a command inside a script: "ERR Error running script (…): @user_script:12: WRONGTYPE …".
// If the script itself returns the refusal, the text is "@user_script: 79: -OOM …".
func hasCode(err error, code string) bool {
	if redis.HasErrorPrefix(err, code) {
		return true
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	const place = "@user_script:"
	text := answer.Error()
	last := strings.LastIndex(text, place)
	if last < 0 {
		return false
	}
	_, refusal, _ := strings.Cut(text[last+len(place):], ": ")
	return strings.HasPrefix(strings.TrimPrefix(refusal, "-"), code+" ")
}
