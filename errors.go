package fencepost

import (
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes. Compare with errors.Is. One fact is one value, whichever layer met it. Errors of the
// caller's own function and SQL pass through with what they carry, a *pgconn.PgError for instance.
var (
	// ErrInvalid: refused before any network traffic.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: Redis or PostgreSQL could not answer, or refused for reasons of its own. It
	// says nothing about who holds the lease; nothing was written.
	ErrUnavailable = token.ErrUnavailable
	// ErrHeld: somebody else holds the lease. The error is a *HeldError.
	ErrHeld = token.ErrHeld
	// ErrLost: this handle no longer owns its lease. The error is a *LostError.
	ErrLost = token.ErrLost
	// ErrReleased stands behind ErrLost where the holder itself released the lease.
	ErrReleased = lease.ErrReleased
	// ErrBadKey: a Redis key that the lease needs holds what this library did not write. It matches
	// ErrUnavailable as well.
	ErrBadKey = lease.ErrBadKey
	// ErrStale: the fence, or the row, has seen a higher token. The error is a *StaleError.
	ErrStale = fence.ErrStale
	// ErrTokenSpent: a bare token has already written this row.
	ErrTokenSpent = fence.ErrTokenSpent
	// ErrNotFound: no such row.
	ErrNotFound = fence.ErrNotFound
	// ErrExists: an insert whose key is taken.
	ErrExists = fence.ErrExists
	// ErrRefused: the row is there and the token good enough, yet the database changed nothing.
	ErrRefused = fence.ErrRefused
	// ErrOutcomeUnknown: the write may or may not have been committed.
	ErrOutcomeUnknown = fence.ErrOutcomeUnknown
	// ErrKeyReused: an idempotency key has been used with another request. Nothing was written.
	ErrKeyReused = fence.ErrKeyReused
	// ErrTable: the table cannot be fenced as it stands; the error says why.
	ErrTable = fence.ErrTable
	// ErrTokenRegressed: the lease layer kept handing out tokens that the fence refused, after the
	// bounded tries to lift them.
	ErrTokenRegressed = errors.New("fencepost: tokens regressed")
)

// The types behind the outcomes, and the values that the layers share.
type (
	// HeldError says who holds a lease, and for how long yet.
	HeldError = lease.HeldError
	// LostError says why a handle no longer owns its lease.
	LostError = lease.LostError
	// StaleError says what refused a token.
	StaleError = fence.StaleError
	// Claim is what a worker needs in order to write under a lease: resource, token and nonce.
	Claim = fence.Claim
	// Token is a fencing token.
	Token = token.Token
	// Key holds the values of a table's key columns.
	Key = fence.Key
	// Set holds the columns to write and their values.
	Set = fence.Set
)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// ReasonIdle is why a lease counts as lost after PostgreSQL ended its transaction.
const ReasonIdle lease.Reason = "transaction idle for too long"

// codeIdleInTransaction is what PostgreSQL says when a transaction was idle for longer than MaxIdle.
const codeIdleInTransaction = "25P03"
