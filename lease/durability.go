package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// runConfirmed runs a script and, where the manager asks for it, has what it wrote confirmed. The two
// travel in one pipeline, since the confirmation is about what this connection wrote.
func (s *scripts) runConfirmed(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	if !s.durability.asked() {
		return script.Run(ctx, s.client, keys, args...).Result()
	}
	reply, confirmed, err := s.pipelined(ctx, func(pipe redis.Pipeliner) *redis.Cmd {
		return script.EvalSha(ctx, pipe, keys, args...)
	})
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // a pipeline does not fall back by itself
		reply, confirmed, err = s.pipelined(ctx, func(pipe redis.Pipeliner) *redis.Cmd {
			return script.Eval(ctx, pipe, keys, args...)
		})
	}
	if err != nil {
		return nil, err
	}
	if _, granted := reply.(string); granted && confirmed != nil {
		return nil, confirmed
	}
	return reply, nil
}

// pipelined returns the script's reply, why it was not confirmed, and the script's error.
func (s *scripts) pipelined(ctx context.Context, eval func(redis.Pipeliner) *redis.Cmd) (reply any, confirmed, err error) {
	pipe := s.client.Pipeline()
	script := eval(pipe)
	var wait *redis.Cmd
	ms := s.durability.Timeout.Milliseconds()
	if s.durability.LocalAOF {
		wait = pipe.Do(ctx, "WAITAOF", 1, s.durability.Replicas, ms)
	} else {
		wait = pipe.Do(ctx, "WAIT", s.durability.Replicas, ms)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	reply, err = script.Result()
	return reply, s.confirmed(wait), err
}

func (s *scripts) confirmed(wait *redis.Cmd) error {
	reply, err := wait.Result()
	if err != nil {
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	local := int64(1)
	replicas, plain := reply.(int64) // WAIT's; WAITAOF answers with two numbers
	if list, _ := reply.([]any); !plain {
		local, replicas = number(list, 0), number(list, 1)
	}
	switch {
	case local < 1:
		return fmt.Errorf("%w: its append-only file is not on disk in time", errUnconfirmed)
	case replicas < int64(s.durability.Replicas):
		return fmt.Errorf("%w: by %d replicas in time, not %d", errUnconfirmed, replicas, s.durability.Replicas)
	}
	return nil
}

// errUnconfirmed is a grant that was made and not confirmed.
var errUnconfirmed = errors.New("grant not confirmed")
