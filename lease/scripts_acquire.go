package lease

import (
	"context"
	"strconv"
	"time"

	"github.com/fencepost-pg/fencepost/token"
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

// acquireWhole makes the call, in a batch where there is a batcher, and returns once it has ended. If ctx ends before
// it is sent, it is not made.
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
