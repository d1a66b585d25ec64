package lease

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// backend is where leases live: one Redis, or a quorum of them.
type backend interface {
	// The first two return early when ctx ends, or once r.within or within has passed. pending is then not nil: it waits
	// for the call to end and returns its error.
	acquire(ctx context.Context, r *request) (g grant, pending func() error, err error)
	release(ctx context.Context, id ident, within time.Duration) (answer string, pending func() error, err error)
	// The All forms send several calls together, do not block the caller, and return their answers in the same order.
	sendAcquireAll(ctx context.Context, all []*request) []future[grant]
	sendReleaseAll(ctx context.Context, all []ident) []future[string]
	// The others return the reply words of the scripts; see the reply constants.
	runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error)
	runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error)
	// runShorten is runRenew, but it may leave the key with less time than it has. open reports that the call may still
	// arrive at a server later.
	runShorten(ctx context.Context, id ident, ttl time.Duration) (answer string, open bool, err error)
	runRelease(ctx context.Context, id ident) (string, error)
	// runLeave gives up a place in the queue, and a reservation. held means that the caller holds the lease that was
	// granted in the waiter's name; otherwise that goes to the next waiter as well.
	runLeave(ctx context.Context, id ident, waiter string, held bool) error
	// runConfirm prolongs a lease that a release granted in our name. tok is what it must carry; "" for any.
	runConfirm(ctx context.Context, id ident, label string, ttl time.Duration, tok string) (string, error)
	// handsOver reports whether a release may grant a lease in a waiter's name.
	handsOver() bool
	// renewAll renews several leases at once, each for its own TTL, and fills in the answers.
	renewAll(batch []renewal)
	// groups splits leases by the server they live on, so that a hanging server costs no lease on another.
	groups(leases []*Lease) [][]*Lease
	// roundTrip is the longest that a reply takes, as far as is known.
	roundTrip() time.Duration
	// refresh looks up again where resources live, after a server did not answer. It does not block the caller.
	refresh()
}

// ident is what the scripts need to know about a lease.
type ident struct {
	resource string
	keys     keys
	secret   any     // the nonce's digits, as an argument
	shares   *shares // of a quorum; nil over a single Redis
}

// digits is the nonce in hexadecimal.
func (id ident) digits() string {
	text, _ := id.secret.(string)
	return text
}

// renewal is one renewal among several.
type renewal struct {
	lease    *Lease
	ttl      time.Duration
	confirms bool // the lease was handed over, and nothing has confirmed it yet
	answer   string
	err      error
}
