package token

import "errors"

// The outcomes that more than one layer can meet. Each layer gives them out under its own name
// (lease.ErrUnavailable and fence.ErrUnavailable are this value), so that one fact is one value
// for errors.Is, whichever layer met it.
var (
	// ErrInvalid: the call was refused before any network traffic, for what it was given.
	ErrInvalid = errors.New("fencepost: invalid")
	// ErrUnavailable: the backend could not answer, or refused for reasons of its own. It says
	// nothing about who holds the lease or whether the token is good.
	ErrUnavailable = errors.New("fencepost: unavailable")
	// ErrHeld: somebody else holds the lease; the backend answered.
	ErrHeld = errors.New("fencepost: held by another")
	// ErrLost: this handle no longer owns the lease.
	ErrLost = errors.New("fencepost: lease lost")
)
