package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// infoHook counts INFO, and refuses it with the error of a server that does not know it.
type infoHook struct {
	asked   atomic.Int64
	unknown bool
	before  func(redis.Cmder) // each other command; nil for nothing
}

func (h *infoHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *infoHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "info" {
			if h.before != nil {
				h.before(cmd)
			}
			return next(ctx, cmd)
		}
		h.asked.Add(1)
		if h.unknown {
			cmd.SetErr(unknownCommand("ERR unknown command 'INFO'"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (h *infoHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// unknownCommand is a server's refusal.
type unknownCommand string

func (e unknownCommand) Error() string { return string(e) }

// RedisError marks it as a Redis error.
func (unknownCommand) RedisError() {}

// C60: a server whose share is recreated may have an expiring counter, from before CounterIdle was turned off.
func TestCase60_AFillWithoutCounterIdleTakesTheExpiryOff(t *testing.T) {
	t.Parallel()
	r := setupCircle(t, 3, lease.QuorumOptions{})
	l := try(t, r.holder, "r", time.Minute, &lease.AcquireOptions{RenewEvery: 200 * time.Millisecond})
	leaseKey, counterKey := lease.KeysOf("p", "r")
	eventually(t, "all shares", func() bool { return r.shares(t, "r") == 3 })
	server := r.straight[2]
	if ok, err := server.PExpire(t.Context(), counterKey, 48*time.Hour).Result(); err != nil || !ok {
		t.Fatalf("the counter does not expire, so the test shows nothing: %v", err)
	}
	if err := server.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a share created again", func() bool { return r.shares(t, "r") == 3 })
	if ttl := server.PTTL(t.Context(), counterKey).Val(); ttl != -1 {
		t.Errorf("the counter has %v left", ttl)
	}
	release(t, l)
}

// C61: a server is asked who it is once, by one caller of a crowd, whether it answers or may not. After it could not be
// reached, it is asked again.
func TestCase61_AQuorumAsksForINFOOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		acl     bool
		unknown bool
	}{{name: "allowed"}, {name: "forbidden", acl: true}, {name: "not known", unknown: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const crowdOf = 20
			r := setupCircle(t, 3, lease.QuorumOptions{})
			hooks, clients := make([]*infoHook, 3), make([]redis.UniversalClient, 3)
			for i, proxy := range r.proxies {
				o := &redis.Options{Addr: proxy.Addr(), MaxRetries: -1}
				if c.acl {
					user := []any{"ACL", "SETUSER", "q", "on", ">secret", "~*", "+@all", "-info"}
					if testenv.RedisAtLeast(t, r.straight[i], "6.2") {
						user = append(user, "&*")
					}
					if err := r.straight[i].Do(t.Context(), user...).Err(); err != nil {
						t.Fatal(err)
					}
					o.Username, o.Password = "q", "secret"
				}
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				hooks[i] = &infoHook{unknown: c.unknown}
				client.AddHook(hooks[i])
				clients[i] = client
			}
			q := newQuorum(t, clients, lease.QuorumOptions{NodeTimeout: 10 * time.Second})
			for range 3 {
				for _, err := range crowd(t, q, crowdOf) {
					t.Error(err)
				}
			}
			eventually(t, "the slowest to have been asked", func() bool { return hooks[2].asked.Load() > 0 })
			for i, h := range hooks {
				if n := h.asked.Load(); n != 1 {
					t.Errorf("server %d was asked %d times who it is", i, n)
				}
			}
			r.proxies[0].Cut()
			release(t, try(t, q, "r", time.Minute, nil))
			eventually(t, "the server to be known no more", func() bool {
				release(t, try(t, q, "r", time.Minute, nil))
				return hooks[0].asked.Load() > 1
			})
			r.proxies[0].Heal()
			eventually(t, "the server's part in a lease", func() bool {
				l := try(t, q, "r", time.Minute, nil)
				defer release(t, l)
				have, of := l.Shares()
				return have == of
			})
			before := hooks[0].asked.Load()
			for range 5 {
				release(t, try(t, q, "r", time.Minute, nil))
			}
			if n := hooks[0].asked.Load(); n != before {
				t.Errorf("the server was asked who it is %d times more", n-before)
			}
		})
	}
}

// C61: servers lose their data between their grants and the write-back of the token. Nobody held the lease, so nobody
// lost it.
func TestCase61_ServersEmptiedDuringTheGrantAreUnavailable(t *testing.T) {
	t.Parallel()
	r := setupCircle(t, 3, lease.QuorumOptions{})
	for i, counter := range []string{"1", "5", "9"} { // tokens that differ are written back
		if err := r.straight[i].Set(t.Context(), "p:{r}:token", counter, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var once sync.Once
	emptied := make(chan struct{})
	var clients []redis.UniversalClient
	for _, server := range r.servers {
		client := testenv.RedisOn(t, server.URL())
		client.(*redis.Client).AddHook(&infoHook{before: func(cmd redis.Cmder) {
			if args := cmd.Args(); len(args) < 3 || !strings.HasPrefix(cmd.Name(), "eval") || args[2] != 2 {
				return
			}
			once.Do(func() { // the first write-back is about to be sent, and the others wait
				for _, rdb := range r.straight {
					_ = rdb.FlushAll(context.Background()).Err()
				}
				close(emptied)
			})
		}})
		clients = append(clients, client)
	}
	q := newQuorum(t, clients, lease.QuorumOptions{Options: lease.Options{Prefix: "p"}})
	_, err := q.TryAcquire(t.Context(), "r", time.Minute, nil)
	var report *lease.QuorumError
	if wantErr(
		t,
		err,
		lease.ErrUnavailable,
	); !errors.As(err, &report) || errors.Is(err, lease.ErrLost) ||
		!lease.IsClosed(emptied) {
		t.Fatalf("got %v, servers emptied: %v", err, lease.IsClosed(emptied))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := q.Acquire(ctx, "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
}
