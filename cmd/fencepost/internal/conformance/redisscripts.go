package conformance

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// noScript runs a script that no server can have seen.
func (k *keyspace) noScript(ctx context.Context) error {
	key := k.key(k.run, "script")
	script := redis.NewScript(
		`redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return redis.call('GET', KEYS[1]) --` + k.run,
	)
	err := script.EvalSha(ctx, k.client, []string{key}, "1").Err()
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return fmt.Errorf("EVALSHA of an unknown script is not refused by NOSCRIPT: %w", orNil(err))
	}
	for _, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.Eval, script.EvalSha} {
		reply, err := run(ctx, k.client, []string{key}, "1").Text()
		if err != nil {
			return err
		}
		if reply != "1" {
			return fmt.Errorf("a script that returns 1 returned %q", reply)
		}
	}
	return nil
}

// atomic lets many clients read a number, pause, and write it back incremented.
func (k *keyspace) atomic(ctx context.Context) error {
	const workers, each = 8, 25
	key := k.key(k.run, "atomic")
	script := redis.NewScript(`
		local n = tonumber(redis.call('GET', KEYS[1]) or '0')
		for i = 1, 200 do redis.call('EXISTS', KEYS[1]) end
		redis.call('SET', KEYS[1], n + 1, 'PX', 60000)
		return n + 1`)
	var all sync.WaitGroup
	failed := make(chan error, workers)
	for range workers {
		all.Go(func() {
			for range each {
				if err := script.Run(ctx, k.client, []string{key}).Err(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	n, err := k.client.Get(ctx, key).Int()
	if err == nil && n != workers*each {
		err = fmt.Errorf("%d scripts that add 1 came to %d", workers*each, n)
	}
	return err
}
