package mode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// redisLock is the recipe that everybody knows: SET key nonce NX PX ttl, polled for; and a script that removes the
// key if it is still ours. It renews nothing and has no token.
type redisLock struct {
	*servers
	prefix string
	ttl    time.Duration
}

// pollEvery is the mean pause between two tries; each is drawn between half and one and a half times that.
const pollEvery = 50 * time.Millisecond

const compareAndDelete = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`

func (m *redisLock) Run(ctx context.Context, op *work.Operation) error {
	key, nonce := m.prefix+op.Resource, rand.Text()
	if err := m.lock(ctx, key, nonce); err != nil {
		return err
	}
	defer m.unlock(ctx, key, nonce)
	seen, err := m.readAndPause(ctx, op)
	if err != nil {
		return err
	}
	return m.writeOnce(ctx, op, seen)
}

func (m *redisLock) lock(ctx context.Context, key, nonce string) error {
	for {
		err := m.redis[0].SetArgs(ctx, key, nonce, redis.SetArgs{Mode: "NX", TTL: m.ttl}).Err()
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, redis.Nil):
			return fmt.Errorf("take the lock: %w", err)
		case wait.For(ctx, pollEvery/2+mathrand.N(pollEvery)) != nil:
			return fmt.Errorf("%w: the lock: %w", fencepost.ErrHeld, ctx.Err())
		}
	}
}

// unlock ignores what it finds, because the work is done.
func (m *redisLock) unlock(ctx context.Context, key, nonce string) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPatience)
	defer cancel()
	_ = redis.NewScript(compareAndDelete).Run(detached, m.redis[0], []string{key}, nonce).Err()
}
