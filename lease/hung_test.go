package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// stuckHook holds pipelines that name a key, as a connection does whose peer has silently gone.
type stuckHook struct {
	key     string
	stuck   chan struct{} // receives one for each pipeline held
	release chan struct{}
}

func (h *stuckHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stuckHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *stuckHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if strings.Contains(cmd.String(), h.key) {
				h.stuck <- struct{}{}
				<-h.release
				break
			}
		}
		return next(ctx, cmds)
	}
}

// One renewal hangs in its connection. It has time; others do not, and must not wait behind it.
func TestAHungRenewalHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	prefix := testenv.Prefix(t)
	client := testenv.RedisOn(t, testenv.RedisURL(t))
	hook := &stuckHook{key: prefix + ":{patient}", stuck: make(chan struct{}, 16), release: make(chan struct{})}
	client.AddHook(hook)
	b := bundle{rdb: client, prefix: prefix}
	b.m = manager(t, client, lease.Options{Prefix: prefix})
	b.acquire(t, "patient", time.Minute, &lease.AcquireOptions{RenewEvery: 20 * time.Millisecond})
	within(t, "a renewal that hangs", 5*time.Second, hook.stuck)
	const ttl = 2 * time.Second
	hasty := b.acquire(t, "hasty", ttl, &lease.AcquireOptions{RenewEvery: ttl / 10})
	select {
	case <-hasty.Done():
		t.Errorf("lost behind a renewal that hangs: %v", hasty.Err())
	case <-time.After(ttl + ttl/4): // only renewals can have kept it
	}
	close(hook.release)
}
