package lease

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// backend is where leases live: one Redis, or a quorum of them.
type backend interface {
	// The first two do not keep the caller.
	sendAcquire(ctx context.Context, r *request) future[grant]
	sendRelease(ctx context.Context, id ident) future[string]
	// The answers of the others are those of the scripts; see the reply constants.
	runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error)
	runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error)
	runRelease(ctx context.Context, id ident) (string, error)
	runLeave(ctx context.Context, id ident, waiter string) error
	// renewAll renews several leases at once, each for its TTL, and fills in the answers.
	renewAll(batch []renewal)
	// groups parts leases by where they live: a server that hangs must cost no lease on another.
	groups(leases []*Lease) [][]*Lease
	// refresh looks again where resources live, after a server has not answered. It does not keep the caller.
	refresh()
}

// ident is what the scripts need to know of a lease.
type ident struct {
	resource string
	keys     keys
	secret   string // the nonce's digits
}

// renewal is one renewal among several.
type renewal struct {
	lease  *Lease
	ttl    time.Duration
	answer string
	err    error
}
