package lease

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/reissue.lua
var reissueLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/leave.lua
var leaveLua string

//go:embed lua/fill.lua
var fillLua string

// scripts runs the protocol's Lua on one client. Each call is one EVALSHA, followed by an EVAL
// where the server has not seen the script.
type scripts struct {
	client                                        redis.UniversalClient
	courier                                       *courier
	acquire, reissue, renew, release, leave, fill *redis.Script

	// Arguments that never change, made ready once.
	channel     any // of the prefix; a manager's id is appended to it
	reservation any // ms, 0 with the queue off
	idle        any // ms, of counters
	queueTTL    any // ms
	counts      any // "1" where PUBLISH tells how many heard it

	durability Durability
}

func newScripts(client redis.UniversalClient, opts Options) scripts {
	s := scripts{
		client:      client,
		courier:     newCourier(client),
		acquire:     redis.NewScript(acquireLua),
		reissue:     redis.NewScript(reissueLua),
		renew:       redis.NewScript(renewLua),
		release:     redis.NewScript(releaseLua),
		leave:       redis.NewScript(leaveLua),
		fill:        redis.NewScript(fillLua),
		channel:     opts.Prefix + ":wake:",
		reservation: reservation.Milliseconds(),
		idle:        milliseconds(opts.CounterIdle),
		queueTTL:    queueTTL.Milliseconds(),
		counts:      "1",
		durability:  opts.Durability,
	}
	if _, cluster := client.(*redis.ClusterClient); cluster {
		s.counts = "0"
	}
	if opts.NoQueue {
		s.reservation = 0
	}
	return s
}

// Answers of the scripts.
const (
	replyHeld     = "held"
	replyBad      = "bad"
	replyReissued = "reissued"
	replyRenewed  = "renewed"
	replyReleased = "released"
	replyGone     = "gone"
	replyTaken    = "taken"
)

// grant is what a successful acquire brings.
type grant struct {
	token token.Token
	anew  bool // the counter did not exist before, or was below the floor
}

func (s *scripts) sendAcquire(ctx context.Context, r *request) future[grant] {
	switch {
	case ctx.Done() == nil: // a caller that nothing can call away may as well go itself
		g, err := s.runAcquire(ctx, r)
		return settled(g, err)
	case s.courier == nil, s.durability.asked(): // a confirmation belongs to one connection's writes
		return async(func() (grant, error) { return s.runAcquire(ctx, r) })
	}
	p := s.courier.take(ctx, s.acquire, r.scriptKeys(), s.acquireArgs(r)...)
	return future[grant]{p.done, func() (grant, error) { return s.granted(ctx, r, p.reply, p.err) }}
}

func (s *scripts) runAcquire(ctx context.Context, r *request) (grant, error) {
	reply, err := s.runConfirmed(ctx, s.acquire, r.scriptKeys(), s.acquireArgs(r)...)
	return s.granted(ctx, r, reply, err)
}

func (r *request) scriptKeys() []string { return []string{r.keys.lease, r.keys.counter, r.keys.queue} }

func (s *scripts) acquireArgs(r *request) []any {
	floor := any("0")
	if r.floor != 0 {
		floor = r.floor.String()
	}
	return []any{r.secret, milliseconds(r.ttl), r.label, s.idle, floor, r.waiter, s.channel, s.reservation, s.queueTTL, s.counts}
}

// granted reads the answer of acquire.
func (s *scripts) granted(ctx context.Context, r *request, reply any, err error) (grant, error) {
	if err != nil {
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			return grant{}, s.wrongType(ctx, r)
		}
		return grant{}, s.failed(ctx, "acquire", r.resource, err)
	}
	if text, ok := reply.(string); ok {
		tok, err := token.Parse(text)
		if err != nil {
			return grant{}, &BadKeyError{Resource: r.resource, Key: r.keys.counter, Why: "not a number"}
		}
		return grant{token: tok, anew: tok == r.floor+1}, nil
	}
	return grant{}, refusal(r, reply)
}

// refusal reads the answers of acquire that grant nothing.
func refusal(r *request, reply any) error {
	list, _ := reply.([]any)
	switch field(list, 0) {
	case replyHeld:
		held := &HeldError{Resource: r.resource, TTL: time.Duration(number(list, 1)) * time.Millisecond, Label: field(list, 2)}
		return &inLine{HeldError: held, place: int(number(list, 3))}
	case replyBad:
		key := r.keys.lease
		if field(list, 1) == "counter" {
			key = r.keys.counter
		}
		return &BadKeyError{Resource: r.resource, Key: key, Why: field(list, 2)}
	}
	return unexpected("acquire", r.resource, reply)
}

// wrongType finds out which of the keys is of another type. It returns early when ctx ends.
func (s *scripts) wrongType(ctx context.Context, r *request) error {
	bad, late, err := do(ctx, func() (string, error) { return s.foreignKey(ctx, r) })
	switch {
	case late != nil:
		return interpret(ctx, "acquire", r.resource, ctx.Err())
	case err != nil:
		return s.failed(ctx, "acquire", r.resource, err)
	}
	return &BadKeyError{Resource: r.resource, Key: bad, Why: "of another type"}
}

func (s *scripts) foreignKey(ctx context.Context, r *request) (string, error) {
	bad := r.keys.queue
	for _, key := range []string{r.keys.lease, r.keys.counter} {
		typ, err := s.client.Type(ctx, key).Result()
		if err != nil {
			return "", err
		}
		if typ != "string" && typ != "none" {
			bad = key
		}
	}
	return bad, nil
}

func (s *scripts) runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error) {
	reply, err := s.reissue.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter}, id.secret, fence.String(), s.idle).Slice()
	if err != nil {
		return "", 0, s.failed(ctx, "reissue", id.resource, err)
	}
	if field(reply, 0) != replyReissued {
		return field(reply, 0), 0, nil
	}
	tok, err := token.Parse(field(reply, 1))
	if err != nil {
		return "", 0, unexpected("reissue", id.resource, reply)
	}
	return replyReissued, tok, nil
}

func (s *scripts) runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error) {
	reply, err := s.renew.Run(ctx, s.client, []string{id.keys.lease}, id.secret, milliseconds(ttl)).Text()
	return reply, s.failed(ctx, "renew", id.resource, err)
}

func (s *scripts) sendRelease(ctx context.Context, id ident) future[string] {
	if s.courier == nil {
		return async(func() (string, error) { return s.runRelease(ctx, id) })
	}
	p := s.courier.take(ctx, s.release, []string{id.keys.lease, id.keys.queue}, id.secret, s.channel, s.reservation, s.counts, "0")
	return future[string]{p.done, func() (string, error) {
		word, _ := p.reply.(string)
		return word, interpret(ctx, "release", id.resource, p.err)
	}}
}

func (s *scripts) runRelease(ctx context.Context, id ident) (string, error) {
	reply, err := s.handOn(ctx, id, false)
	if slotMoves(err) {
		// The slot is on the move. The lease key alone can be reached, and the waiters once it has moved.
		reply, err = s.release.Run(ctx, s.client, []string{id.keys.lease}, id.secret, s.channel, s.reservation, s.counts, "0").Text()
		if err == nil {
			go s.handOnLater(context.WithoutCancel(ctx), id)
		}
	}
	return reply, s.failed(ctx, "release", id.resource, err)
}

// slotMoves reports whether a cluster refused a script because its slot is on the move and not all of its keys are there.
// Redis says so before it begins; Valkey 8.1 where the script comes to a key that is elsewhere, and as a plain ERR.
func slotMoves(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || err != nil && strings.Contains(err.Error(), "access a non local key")
}

// handOn releases the lease to the head of the queue; free tells that it is released already.
func (s *scripts) handOn(ctx context.Context, id ident, free bool) (string, error) {
	already := "0"
	if free {
		already = "1"
	}
	return s.release.Run(ctx, s.client, []string{id.keys.lease, id.keys.queue},
		id.secret, s.channel, s.reservation, s.counts, already).Text()
}

// handOnLater hands a lease on that was released while its slot was on the move. It gives up after a while:
// waiters look by themselves.
func (s *scripts) handOnLater(ctx context.Context, id ident) {
	for pause := 10 * time.Millisecond; pause < 5*time.Second; pause *= 2 {
		<-time.After(pause)
		if _, err := s.handOn(ctx, id, true); !slotMoves(err) {
			return
		}
	}
}

func (s *scripts) runLeave(ctx context.Context, id ident, waiter string) error {
	err := s.leave.Run(ctx, s.client, []string{id.keys.lease, id.keys.queue}, waiter, s.channel, s.reservation, s.counts).Err()
	return s.failed(ctx, "leave the queue of", id.resource, err)
}

// runFill gives a node of a quorum its share of a lease back.
func (s *scripts) runFill(ctx context.Context, l *Lease, ttl time.Duration, tok token.Token) (string, error) {
	reply, err := s.fill.Run(ctx, s.client, []string{l.keys.lease, l.keys.counter},
		l.secret, milliseconds(ttl), l.label, s.idle, tok.String()).Text()
	return reply, interpret(ctx, "fill", l.resource, err)
}

// failed is interpret, and has the client of a cluster look for other servers.
func (s *scripts) failed(ctx context.Context, verb, resource string, err error) error {
	if err != nil {
		s.refresh()
	}
	return interpret(ctx, verb, resource, err)
}

// field returns the text at index i of a reply, "" where there is none.
func field(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

// number returns the integer at index i of a reply, 0 where there is none.
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
