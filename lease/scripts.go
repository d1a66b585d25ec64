package lease

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/acquire_all.lua
var acquireAllLua string

//go:embed lua/reissue.lua
var reissueLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/release_all.lua
var releaseAllLua string

//go:embed lua/leave.lua
var leaveLua string

//go:embed lua/confirm.lua
var confirmLua string

//go:embed lua/fill.lua
var fillLua string

// scripts runs the protocol's Lua on one client. Each call is one EVALSHA, followed by an EVAL if the server does not
// know the script.
type scripts struct {
	client                                                    redis.UniversalClient
	batcher                                                   *batcher
	granting, reissue, renew, releasing, leave, fill, confirm *script
	grantingAll, releasingAll                                 *script

	// Arguments that never change, prepared once.
	channel     any // of the prefix; a manager's id is appended to it
	reservation any // ms, the shortest; 0 with the queue off
	idle        any // ms, of counters
	queueTTL    any // ms
	counts      any // "1" if PUBLISH reports how many subscribers received it
	label       any // the manager's
	lastTTL     atomic.Pointer[ttlArgument]

	clock      clocks
	durability Durability
	trips      *trips       // how long the server takes to answer
	follow     *follow      // checks leases that were handed on
	anonymous  *atomic.Bool // the server may not be asked who it is
}

func newScripts(client redis.UniversalClient, opts Options) *scripts {
	measured := &trips{}
	s := &scripts{
		client:       client,
		batcher:      newBatcher(client, measured),
		trips:        measured,
		granting:     newScript(acquireLua),
		reissue:      newScript(reissueLua),
		renew:        newScript(renewLua),
		releasing:    newScript(releaseLua),
		leave:        newScript(leaveLua),
		fill:         newScript(fillLua),
		confirm:      newScript(confirmLua),
		grantingAll:  newScript(acquireAllLua),
		releasingAll: newScript(releaseAllLua),
		anonymous:    new(atomic.Bool),
		label:        opts.Label,
		channel:      opts.Prefix + ":wake:",
		reservation:  shortestReservation.Milliseconds(),
		idle:         milliseconds(opts.CounterIdle),
		queueTTL:     queueTTL.Milliseconds(),
		counts:       "1",
		clock:        opts.clock,
		durability:   opts.Durability,
	}
	if _, cluster := client.(*redis.ClusterClient); cluster {
		s.counts = "0"
	}
	if opts.NoQueue {
		s.reservation = 0
	}
	s.follow = newFollow(opts.ReleaseTimeout, s.callRoll)
	return s
}

// Replies of the scripts.
const (
	replyHeld     = "held"
	replyYours    = "yours"
	replyBad      = "bad"
	replyReissued = "reissued"
	replyRenewed  = "renewed"
	replyReleased = "released"
	replyGone     = "gone"
	replyTaken    = "taken"
	replyFilled   = "filled"
	replyReserved = "reserved"
	replyGranted  = "granted"
)

// runFill restores the share of a lease on a node of a quorum.
func (s *scripts) runFill(
	ctx context.Context,
	id ident,
	label string,
	ttl time.Duration,
	tok token.Token,
) (string, error) {
	reply, err := s.fill.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter},
		id.secret, milliseconds(ttl), label, s.idle, tok.String()).Text()
	return reply, interpret(ctx, "fill", id.resource, err)
}

// failed is interpret, but it also makes a cluster client look up its servers again.
func (s *scripts) failed(ctx context.Context, verb, resource string, err error) error {
	if err != nil {
		s.refresh()
	}
	return interpret(ctx, verb, resource, err)
}

// field returns the text at index i of a reply, or "" if the reply has none.
func field(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

// number returns the integer at index i of a reply, or 0 if the reply has none.
func number(reply []any, i int) int64 {
	if i >= len(reply) {
		return 0
	}
	n, _ := reply[i].(int64)
	return n
}

func unexpected(verb, resource string, reply any) error {
	return fmt.Errorf("%w: %s %q: reply %v", ErrUnavailable, verb, resource, reply)
}
