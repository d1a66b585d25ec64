package lease

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// introducing answers each command in place of a server, under a context that has not ended.
type introducing struct{}

func (introducing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (introducing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if info, ok := cmd.(*redis.StringCmd); ok && ctx.Err() == nil {
			info.SetVal("run_id:abc\r\n")
			return nil
		}
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}

func (introducing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// C61: many callers wait for the reply of a server that is asked who it is. It does not end with the call that asked.
func TestCase61_WhoAServerIsIsAskedForAll(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(introducing{})
	n := &node{scripts: &scripts{client: client}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.identify(over, time.Minute); err != nil || n.who.known() != "abc" {
		t.Errorf("the server is %q, %v", n.who.known(), err)
	}
}
