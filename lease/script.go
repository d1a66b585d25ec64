package lease

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a script whose hash is an argument already: to make an argument of a string costs an allocation.
type script struct {
	*redis.Script
	source string
	hash   any
}

func newScript(source string) *script {
	s := redis.NewScript(source)
	return &script{Script: s, source: source, hash: s.Hash()}
}

// evalSHA is the name of the command that runs a script by its hash. The whole command is one slice, which go-redis
// takes as it is: EVALSHA, hash, number of keys, keys, arguments.
const evalSHA = "evalsha"

// evaluation makes go-redis's command of such a slice.
func evaluation(ctx context.Context, command []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, command...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// processor sends one command.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run sends a command of this script alone, and again with its source if the server does not know it.
func (s *script) run(ctx context.Context, client processor, command []any) (any, error) {
	cmd := evaluation(ctx, command)
	_ = client.Process(ctx, cmd) // the command has its own error
	if err := cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = evaluation(ctx, s.withSource(command))
		_ = client.Process(ctx, cmd)
	}
	return cmd.Result()
}

func (s *script) withSource(command []any) []any {
	taught := slices.Clone(command)
	taught[0], taught[1] = "eval", s.source
	return taught
}

// ttlArgument is the last TTL that was asked for. Most callers ask for the same one again.
type ttlArgument struct {
	ttl      time.Duration
	argument any // ms
}

func (s *scripts) ttlArgument(ttl time.Duration) any {
	last := s.lastTTL.Load()
	if last == nil || last.ttl != ttl {
		last = &ttlArgument{ttl, milliseconds(ttl)}
		s.lastTTL.Store(last)
	}
	return last.argument
}
