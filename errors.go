package fencepost

import (
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes. Compare them with errors.Is. Each fact has one value, whichever layer reports it. Errors of the
// caller's own function and SQL pass through with what they wrap, a *pgconn.PgError for instance.
var (
	// ErrInvalid: the call was refused before any network traffic.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: Redis or PostgreSQL could not answer, or refused for reasons of its own. Nothing was written. The
	// error does not tell who holds the lease.
	ErrUnavailable = token.ErrUnavailable
	// ErrHeld: another holder has the lease (*HeldError), or its guarded transactions are still open (*FenceBusyError).
	ErrHeld = token.ErrHeld
	// ErrHeldByCaller: the caller itself already holds the lease, in an outer call that its context comes from, or the
	// lease is that of a [Store.Do] whose transaction is open, so the call would wait forever. Nothing was sent. Use
	// [Store.Join] to run work under the lease that is held.
	ErrHeldByCaller = errors.New("fencepost: held by the caller itself")
	// ErrLost: this handle no longer owns its lease. The error is a *LostError.
	ErrLost = token.ErrLost
	// ErrReleased is wrapped in the *LostError if the holder itself released the lease.
	ErrReleased = lease.ErrReleased
	// ErrBadKey: a Redis key that the lease needs holds something that this library did not write. It matches
	// ErrUnavailable as well.
	ErrBadKey = lease.ErrBadKey
	// ErrStale: the fence, or the row, has seen a higher token. The error is a *StaleError.
	ErrStale = fence.ErrStale
	// ErrTokenSpent: a bare token has already written this row.
	ErrTokenSpent = fence.ErrTokenSpent
	// ErrNotFound: there is no such row.
	ErrNotFound = fence.ErrNotFound
	// ErrExists: the key of an insert is taken.
	ErrExists = pgerr.ErrExists
	// ErrRefused: the row exists and the token is high enough, but the database changed nothing.
	ErrRefused = fence.ErrRefused
	// ErrOutcomeUnknown: the write may or may not have been committed.
	ErrOutcomeUnknown = fence.ErrOutcomeUnknown
	// ErrKeyReused: an idempotency key has been used with another request. Nothing was written.
	ErrKeyReused = pgerr.ErrKeyReused
	// ErrTable: the table cannot be fenced as it is; the error says why.
	ErrTable = fence.ErrTable
	// ErrTokenRegressed: the fence still refused the lease's tokens after a bounded number of tries to lift them.
	ErrTokenRegressed = errors.New("fencepost: tokens regressed")
)

// The types behind the outcomes, and the values that the layers share.
type (
	// HeldError says who holds a lease, and for how much longer.
	HeldError = lease.HeldError
	// LostError says why a handle no longer owns its lease.
	LostError = lease.LostError
	// StaleError says what refused a token.
	StaleError = fence.StaleError
	// NotEnteredError says which write to a protected table had no claim of the row's resource. It matches ErrStale,
	// because PostgreSQL cannot rule out that the writer was overtaken. Inside Do, Tx and Once it is nearly always a
	// programming error: the lease is for another resource. Check for it with errors.As before you check for ErrStale.
	NotEnteredError = fence.NotEnteredError
	// StampError says that a trigger or a rule keeps tokens out of a table's rows.
	StampError = fence.StampError
	// Claim is what a worker needs in order to write under a lease: resource, token and nonce.
	Claim = fence.Claim
	// Token is a fencing token.
	Token = token.Token
	// Key holds the values of a table's key columns.
	Key = fence.Key
	// Set holds the columns to write and their values.
	Set = fence.Set
)

// FenceBusyError says that a lease was free, but its claim could not be made within AcquireOptions.ClaimWait, or before
// ctx reached its deadline, because guarded transactions under an older token of the resource are open. PostgreSQL says
// only that the claim took too long. A ClaimWait that is shorter than a claim takes on a busy server therefore ends in
// the same error. It matches [ErrHeld], because the resource is still in use. Nothing is held.
type FenceBusyError struct {
	Resource string // without the namespace
}

func (e *FenceBusyError) Error() string {
	return fmt.Sprintf("%v: %q: guarded transactions under an older token are open", ErrHeld, e.Resource)
}

// Is reports whether target is [ErrHeld].
func (e *FenceBusyError) Is(target error) bool { return target == ErrHeld }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// The reasons why a lease is lost, in addition to those of package lease.
const (
	// ReasonIdle: PostgreSQL ended the lease's transaction, and it may have been overtaken since.
	ReasonIdle lease.Reason = "transaction idle for too long"
	// ReasonStale: PostgreSQL refused the lease's token. Err is the *StaleError, so the *LostError matches both ErrLost
	// and ErrStale.
	ReasonStale lease.Reason = "stale"
)

// SQLSTATEs, of PostgreSQL and of fencepost's own functions.
const (
	codeIdleInTransaction = "25P03" // a transaction was idle for longer than MaxIdle
	codeStale             = "ZF001" // a claim has been overtaken
	codeNotEntered        = "ZF004" // a write to a protected table without a claim
)
