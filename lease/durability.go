package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// runDurably runs a script and, if the manager requires it, has its writes confirmed. Both travel in one pipeline,
// because the confirmation covers what this connection wrote. waited is how long the confirmation took on top of the
// round trip.
func (s *scripts) runDurably(
	ctx context.Context,
	script *script,
	command []any,
) (reply any, waited time.Duration, err error) {
	if !s.durability.asked() {
		reply, err = script.run(ctx, s.client, command)
		return reply, 0, err
	}
	p := s.pipelined(ctx, evaluation(ctx, command))
	if redis.HasErrorPrefix(p.err, "NOSCRIPT") { // a pipeline does not fall back by itself
		waited = p.waited
		p = s.pipelined(ctx, evaluation(ctx, script.withSource(command)))
	}
	waited += p.waited
	if p.err != nil {
		return nil, waited, p.err
	}
	if _, refused := p.reply.([]any); !refused && p.unconfirmed != nil {
		return nil, waited, p.unconfirmed
	}
	return p.reply, waited, nil
}

// confirmation is the outcome of a script whose writes had to be confirmed.
type confirmation struct {
	reply       any
	err         error // the script's
	unconfirmed error
	waited      time.Duration
}

func (s *scripts) pipelined(ctx context.Context, script *redis.Cmd) confirmation {
	pipe := s.client.Pipeline()
	_ = pipe.Process(ctx, script) // it is queued
	before := pipe.Time(ctx)
	var wait *redis.Cmd
	ms := s.durability.Timeout.Milliseconds()
	if s.durability.LocalAOF {
		wait = pipe.Do(ctx, "WAITAOF", 1, s.durability.Replicas, ms)
	} else {
		wait = pipe.Do(ctx, "WAIT", s.durability.Replicas, ms)
	}
	after := pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each command has its own error
	c := confirmation{unconfirmed: s.confirmed(wait)}
	c.reply, c.err = script.Result()
	if before.Err() == nil && after.Err() == nil { // two readings of the server's own clock
		c.waited = max(0, after.Val().Sub(before.Val()))
	}
	return c
}

func (s *scripts) confirmed(wait *redis.Cmd) error {
	reply, err := wait.Result()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotDurable, err)
	}
	local := int64(1)
	replicas, plain := reply.(int64) // WAIT's; WAITAOF answers with two numbers
	if list, _ := reply.([]any); !plain {
		local, replicas = number(list, 0), number(list, 1)
	}
	switch {
	case local < 1:
		return fmt.Errorf("%w: its append-only file was not on disk in time", errNotDurable)
	case replicas < int64(s.durability.Replicas):
		return fmt.Errorf("%w: by %d replicas in time, not %d", errNotDurable, replicas, s.durability.Replicas)
	}
	return nil
}

// errNotDurable means that a grant was made and not confirmed.
var errNotDurable = errors.New("grant not confirmed")
