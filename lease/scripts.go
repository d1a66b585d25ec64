package lease

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
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
		client:      client,
		batcher:     newBatcher(client, measured),
		trips:       measured,
		granting:    newScript(acquireLua),
		reissue:     newScript(reissueLua),
		renew:       newScript(renewLua),
		releasing:   newScript(releaseLua),
		leave:       newScript(leaveLua),
		fill:        newScript(fillLua),
		confirm:     newScript(confirmLua),
		anonymous:   new(atomic.Bool),
		label:       opts.Label,
		channel:     opts.Prefix + ":wake:",
		reservation: shortestReservation.Milliseconds(),
		idle:        milliseconds(opts.CounterIdle),
		queueTTL:    queueTTL.Milliseconds(),
		counts:      "1",
		clock:       opts.clock,
		durability:  opts.Durability,
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

// grant is the result of a successful acquire.
type grant struct {
	token    token.Token
	absent   bool     // the counter did not exist before, or was below the floor
	yours    bool     // it was made in the waiter's name before
	position position // the caller's, if there is no grant
}

// position is a caller's position in the queue.
type position struct {
	number int     // from 0; -1 if the caller does not wait
	place  string  // Redis's value for the place, for a waiter that has to rejoin in it
	time   int64   // of the server, in microseconds
	server *string // the server's run id, "" if it may not be asked; nil if it was not
}

func (s *scripts) acquire(ctx context.Context, r *request) (g grant, pending func() error, err error) {
	switch {
	case ctx.Done() == nil && r.within == 0: // a caller that cannot be cancelled makes the call itself
		g, err = s.runAcquire(ctx, r)
		return g, nil, err
	case s.batcher == nil, s.durability.asked(): // a confirmation covers the writes of one connection
		return async(func() (grant, error) {
			ctx, cancel := bounded(ctx, r.within)
			defer cancel()
			return s.runAcquire(ctx, r)
		}).await(ctx, r.within)
	}
	p := s.batcher.take(ctx, r.detached, s.granting, s.acquireCommand(r))
	reply, pending, err := s.batcher.await(ctx, p, r.within)
	if pending != nil {
		p.left.Store(true)
		return grant{}, pending, nil
	}
	g, err = s.granted(ctx, r, reply, err)
	return g, nil, err
}

// acquireWhole makes the call, in a batch where there is a batcher, and returns once it has ended. If ctx ends before it
// is sent, it is not made.
func (s *scripts) acquireWhole(ctx context.Context, r *request) (grant, error) {
	if s.batcher == nil {
		return s.runAcquire(ctx, r)
	}
	detached := detach(ctx)
	reply, _, err := s.batcher.await(detached, s.batcher.take(ctx, detached, s.granting, s.acquireCommand(r)), 0)
	return s.granted(ctx, r, reply, err)
}

func (s *scripts) runAcquire(ctx context.Context, r *request) (grant, error) {
	began := time.Now()
	reply, waited, err := s.runDurably(ctx, s.granting, s.acquireCommand(r))
	s.trips.ended(began.Add(waited), err) // the time of a replica or a disk is not part of the round trip
	return s.granted(ctx, r, reply, err)
}

func (s *scripts) acquireCommand(r *request) []any {
	floor := any("0")
	if r.floor != 0 {
		floor = r.floor.String()
	}
	keep := s.reservation
	if r.waiter != "" && keep != any(0) {
		keep = s.trips.reservation().Milliseconds()
	}
	label := s.label
	if r.label != label {
		label = r.label
	}
	return []any{
		evalSHA, s.granting.hash, 3, r.keys.lease, r.keys.counter, r.keys.queue,
		r.secret,
		s.ttlArgument(r.ttl),
		label,
		s.idle,
		floor,
		r.waiter,
		s.channel,
		keep,
		s.queueTTL,
		s.counts,
		r.position.place,
	}
}

// callRoll notifies the waiters of a lease if it is free and those before them have not come for it.
func (s *scripts) callRoll(ctx context.Context, id ident) {
	r := &request{ident: ident{resource: id.resource, keys: id.keys}} // without a nonce, so nothing is granted
	_, _ = s.runAcquire(ctx, r)                                       // if it fails, waiters look by themselves
}

// granted reads the reply of acquire.
func (s *scripts) granted(ctx context.Context, r *request, reply any, err error) (grant, error) {
	if err != nil {
		if hasCode(err, "WRONGTYPE") {
			return grant{}, s.wrongType(ctx, r)
		}
		return grant{}, s.failed(ctx, "acquire", r.resource, err)
	}
	var tok token.Token
	switch reply := reply.(type) {
	case int64:
		tok = token.Token(reply)
	case string:
		if tok, err = token.Parse(reply); err != nil {
			return grant{}, &BadKeyError{Resource: r.resource, Key: r.keys.counter, Why: "not a number"}
		}
	default:
		return s.refused(r, reply)
	}
	return grant{token: tok, absent: tok == r.floor+1}, nil
}

// refused is refusal, and notes a server that may not be asked who it is.
func (s *scripts) refused(r *request, reply any) (grant, error) {
	g, err := refusal(r, reply)
	if server := g.position.server; server != nil && *server == "" {
		s.anonymous.Store(true)
	}
	return g, err
}

// positionIn reads the position in a reply.
func positionIn(list []any) position {
	where := position{number: int(number(list, 3)), place: field(list, 4)}
	if len(list) > 6 {
		server := field(list, 6)
		where.server = &server
		where.time, _ = strconv.ParseInt(field(list, 5), 10, 64)
	}
	return where
}

// refusal reads the replies of acquire that grant nothing to the attempt.
func refusal(r *request, reply any) (grant, error) {
	list, _ := reply.([]any)
	switch field(list, 0) {
	case replyYours:
		tok, err := token.Parse(field(list, 1))
		if err != nil {
			return grant{}, unexpected("acquire", r.resource, reply)
		}
		return grant{token: tok, absent: tok == 1, yours: true}, nil
	case replyHeld:
		return grant{position: positionIn(list)},
			&HeldError{Resource: r.resource, TTL: time.Duration(number(list, 1)) * time.Millisecond, Label: field(list, 2)}
	case replyBad:
		key := r.keys.lease
		if field(list, 1) == "counter" {
			key = r.keys.counter
		}
		return grant{}, &BadKeyError{Resource: r.resource, Key: key, Why: field(list, 2)}
	}
	return grant{}, unexpected("acquire", r.resource, reply)
}

// wrongType finds out which of the keys is of another type. It returns early when ctx ends.
func (s *scripts) wrongType(ctx context.Context, r *request) error {
	ctx, cancel := bounded(ctx, r.within)
	defer cancel()
	bad, pending, err := do(ctx, func() (string, error) { return s.foreignKey(ctx, r) })
	switch {
	case pending != nil:
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
	reply, err := s.reissue.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter}, id.secret, fence.String(), s.idle).
		Slice()
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
	return s.renewOne(ctx, id, ttl, "0")
}

func (s *scripts) runShorten(ctx context.Context, id ident, ttl time.Duration) (answer string, open bool, err error) {
	began := time.Now()
	answer, err = s.renewOne(ctx, id, ttl, "1")
	// After its read timeout go-redis retries by itself, and then the reply may be that of the second try.
	return answer, err != nil || time.Since(began) >= readTimeout(s.client), err
}

// readTimeout is how long one try of a client waits for a reply.
func readTimeout(client redis.UniversalClient) time.Duration {
	var own time.Duration
	switch c := client.(type) {
	case *redis.Client:
		own = c.Options().ReadTimeout
	case *redis.ClusterClient:
		own = c.Options().ReadTimeout
	}
	if own <= 0 {
		return time.Second // a client of another type, or one without a timeout
	}
	return own
}

func (s *scripts) renewOne(ctx context.Context, id ident, ttl time.Duration, shorten string) (string, error) {
	began, run := time.Now(), s.renew.Run
	if s.trips.long(ttl) {
		run = s.renew.Eval // if the server lost the script, EVALSHA would cost another round trip
	}
	reply, err := run(ctx, s.client, []string{id.keys.lease}, id.secret, milliseconds(ttl), shorten).Text()
	s.trips.ended(began, err)
	return reply, s.failed(ctx, "renew", id.resource, err)
}

func (s *scripts) release(
	ctx context.Context,
	id ident,
	within time.Duration,
) (answer string, pending func() error, err error) {
	if s.batcher == nil {
		return async(func() (string, error) { return s.runRelease(ctx, id) }).await(ctx, within)
	}
	reply, pending, err := s.batcher.await(ctx, s.batcher.take(ctx, ctx, s.releasing, s.releaseCommand(id, "0")), within)
	if pending != nil {
		return "", pending, nil
	}
	return s.handedOn(id, reply), nil, interpret(ctx, "release", id.resource, err)
}

// releaseWhole is release without a time limit.
func (s *scripts) releaseWhole(ctx context.Context, id ident) (answer string, err error) {
	if s.batcher == nil {
		return s.runRelease(ctx, id)
	}
	answer, _, err = s.release(detach(ctx), id, 0)
	return answer, err
}

func (s *scripts) releaseCommand(id ident, already string) []any {
	return []any{
		evalSHA, s.releasing.hash, 3, id.keys.lease, id.keys.queue, id.keys.counter,
		id.secret, s.channel, s.reservation, s.counts, already, grantMS,
	}
}

func (s *scripts) runRelease(ctx context.Context, id ident) (string, error) {
	reply, err := s.handOn(ctx, id, false)
	if slotMoves(err) {
		// The slot is migrating. Only the lease key can be reached; the waiters follow once the slot has moved.
		reply, err = s.releasing.run(ctx, s.client, []any{
			evalSHA, s.releasing.hash, 1, id.keys.lease, id.secret, s.channel, s.reservation, s.counts, "0",
		})
		if err == nil {
			go s.handOnLater(context.WithoutCancel(ctx), id)
		}
	}
	return s.handedOn(id, reply), s.failed(ctx, "release", id.resource, err)
}

// handedOn takes the reply of a script that may have handed a lease on. The reply then says for how long it is
// reserved.
func (s *scripts) handedOn(id ident, reply any) string {
	if n, _ := reply.(int64); n == 1 {
		return replyReleased
	}
	text, _ := reply.(string)
	word, ms, more := strings.Cut(text, " ")
	if !more {
		return word
	}
	if n, err := strconv.Atoi(ms); err == nil {
		s.follow.up(id, time.Duration(n)*time.Millisecond)
	}
	return word
}

// slotMoves reports whether a cluster refused a script because its slot is migrating and not all of its keys are
// present. Redis says so before it runs the script. Valkey 8.1 says so when the script reaches a missing key, as a
// plain ERR.
func slotMoves(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || err != nil && strings.Contains(err.Error(), "access a non local key")
}

// handOn releases the lease to the head of the queue; free means that the lease is released already.
func (s *scripts) handOn(ctx context.Context, id ident, free bool) (reply any, err error) {
	already := "0"
	if free {
		already = "1"
	}
	return s.releasing.run(ctx, s.client, s.releaseCommand(id, already))
}

// handOnLater hands on a lease that was released while its slot was migrating. It tries for as long as waiters may
// sleep; after that they look by themselves.
func (s *scripts) handOnLater(ctx context.Context, id ident) {
	pause := 10 * time.Millisecond
	for waited := time.Duration(0); waited < lookEvery; waited += pause {
		pause = min(2*pause, time.Second)
		due := make(chan struct{})
		s.clock.afterFunc(pause, func() { close(due) })
		<-due
		if reply, err := s.handOn(ctx, id, true); !slotMoves(err) {
			s.handedOn(id, reply)
			return
		}
	}
}

func (s *scripts) runLeave(ctx context.Context, id ident, waiter string, held bool) error {
	kept, err := s.leave.Run(ctx, s.client, []string{id.keys.lease, id.keys.queue}, waiter, s.channel).Text()
	if kept == replyReserved || kept == replyGranted && !held {
		id.secret = waiter[:32]
		var reply any
		reply, err = s.handOn(ctx, id, false)
		s.handedOn(id, reply)
	}
	return s.failed(ctx, "leave the queue of", id.resource, err)
}

// grantMS is the least time for which a release grants a lease to a waiter. It is longer than the shortest reservation:
// a holder that has returned and is then short of processors loses the lease if it does not confirm in time, where one
// that was only told to come would have lost a turn.
const grantMS = 1000

// handsOver is true where one server decides, can say who it is, and need not have its grants confirmed by others.
func (s *scripts) handsOver() bool {
	return s.batcher != nil && !s.durability.asked() && s.reservation != any(0) && !s.anonymous.Load()
}

func (s *scripts) runConfirm(
	ctx context.Context,
	id ident,
	label string,
	ttl time.Duration,
	tok string,
) (string, error) {
	began := time.Now()
	reply, err := s.confirm.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter},
		id.secret, milliseconds(ttl), label, s.idle, tok).Text()
	s.trips.ended(began, err)
	return reply, s.failed(ctx, "confirm", id.resource, err)
}

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
