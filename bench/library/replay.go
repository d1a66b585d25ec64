package library

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/measure"
	leases "github.com/fencepost-pg/fencepost/lease"
)

const replayName = "the same two scripts, sent by hand"

// replayed sends what lease.Manager sends for one lease, and nothing else: no grace for a caller whose context ends, no
// deadline, no renewal. What the library costs is above it, and what the protocol costs is below it.
func replayed(ctx context.Context, s Servers) (measure.Candidate, error) {
	pair, err := recordPair(ctx, s)
	return measure.Candidate{Name: replayName, Worker: func(worker int) func(context.Context) error {
		resource := fmt.Sprintf("replayed-%d", worker)
		acquire, release := pair.acquire.of(resource), pair.release.of(resource)
		return func(ctx context.Context) error {
			nonce := newNonce()
			if err := s.Redis.Do(ctx, acquire.under(nonce)...).Err(); err != nil {
				return err
			}
			released, err := s.Redis.Do(ctx, release.under(nonce)...).Int()
			if err == nil && released != 1 {
				err = errors.New("the lease was gone before its release")
			}
			return err
		}
	}}, err
}

// recordedPair is one acquire and one release, as they were sent.
type recordedPair struct{ acquire, release recorded }

// recorded is a command and what stands in it for the resource and the nonce.
type recorded struct {
	command         []any
	resource, nonce string
}

func recordPair(ctx context.Context, s Servers) (recordedPair, error) {
	one, ok := s.Redis.(*redis.Client)
	if !ok {
		return recordedPair{}, errors.New("only what is sent to one server can be recorded")
	}
	const resource = "recorded"
	o := one.Options()
	client := redis.NewClient(&redis.Options{Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB})
	defer func() { _ = client.Close() }()
	r := &recorder{}
	client.AddHook(r)
	manager, err := leases.NewManager(client, &leases.Options{Prefix: "fencepost:replayed:" + s.Name})
	if err != nil {
		return recordedPair{}, err
	}
	for range 2 { // the first time the scripts travel as text
		r.sent = nil
		l, err := manager.TryAcquire(ctx, resource, leaseTTL, nil)
		if err != nil {
			return recordedPair{}, err
		}
		nonce := l.Nonce().Hex()
		if err := l.Release(ctx); err != nil {
			return recordedPair{}, err
		}
		for i := range r.sent {
			r.sent[i].resource, r.sent[i].nonce = resource, nonce
		}
	}
	if len(r.sent) != 2 {
		return recordedPair{}, fmt.Errorf("a lease took %d commands, not 2", len(r.sent))
	}
	return recordedPair{r.sent[0], r.sent[1]}, nil
}

// of returns the command for another resource.
func (r recorded) of(resource string) recorded {
	command := make([]any, len(r.command))
	for i, argument := range r.command {
		if text, ok := argument.(string); ok {
			argument = strings.ReplaceAll(text, r.resource, resource)
		}
		command[i] = argument
	}
	return recorded{command, resource, r.nonce}
}

// under returns the command's arguments with another nonce.
func (r recorded) under(nonce string) []any {
	command := make([]any, len(r.command))
	for i, argument := range r.command {
		if argument == any(r.nonce) {
			argument = nonce
		}
		command[i] = argument
	}
	return command
}

// recorder is a hook that notes the scripts that a client sends.
type recorder struct{ sent []recorded }

func (*recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			r.sent = append(r.sent, recorded{command: cmd.Args()})
		}
		return next(ctx, cmd)
	}
}

func (*recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
