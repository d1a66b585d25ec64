package held

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// renewals counts scripts that a client sends: while leases are held, nothing else is sent but their renewals.
type renewals struct{ count atomic.Int64 }

// DialHook changes nothing.
func (r *renewals) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a script sent by itself.
func (r *renewals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.sent(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts the scripts of a pipeline.
func (r *renewals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.sent(cmds...)
		return next(ctx, cmds)
	}
}

func (r *renewals) sent(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			r.count.Add(1)
		}
	}
}
