package lease

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/reissue.lua
var reissueLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

// scripts runs the protocol's Lua on one client. Each call is one EVALSHA, followed by an EVAL
// where the server has not seen the script; none is sent in a pipeline, where that would fail.
type scripts struct {
	client                          redis.UniversalClient
	acquire, reissue, renew, remove *redis.Script
}

func newScripts(client redis.UniversalClient) scripts {
	return scripts{
		client:  client,
		acquire: redis.NewScript(acquireLua),
		reissue: redis.NewScript(reissueLua),
		renew:   redis.NewScript(renewLua),
		remove:  redis.NewScript(releaseLua),
	}
}

// Answers of the scripts.
const (
	replyGranted  = "granted"
	replyHeld     = "held"
	replyBad      = "bad"
	replyReissued = "reissued"
	replyRenewed  = "renewed"
	replyReleased = "released"
	replyGone     = "gone"
	replyTaken    = "taken"
)

// grant is what a successful acquire brings.
type grant struct {
	token  token.Token
	absent bool // the counter did not exist before
}

func (s scripts) runAcquire(ctx context.Context, r *request, idle time.Duration) (grant, error) {
	reply, err := s.acquire.Run(ctx, s.client, []string{r.keys.lease, r.keys.counter},
		r.nonce.Hex(), r.label, milliseconds(r.ttl), r.floor.String(), milliseconds(idle)).Slice()
	if err != nil {
		return grant{}, interpret(ctx, "acquire", r.resource, err)
	}
	switch field(reply, 0) {
	case replyGranted:
		tok, err := token.Parse(field(reply, 1))
		if err != nil {
			return grant{}, &BadKeyError{Resource: r.resource, Key: r.keys.counter, Why: "not a token: " + field(reply, 1)}
		}
		return grant{token: tok, absent: field(reply, 2) == ""}, nil
	case replyHeld:
		ms, _ := reply[1].(int64)
		return grant{}, &HeldError{Resource: r.resource, TTL: time.Duration(ms) * time.Millisecond, Label: field(reply, 2)}
	case replyBad:
		key := r.keys.lease
		if field(reply, 1) == "counter" {
			key = r.keys.counter
		}
		return grant{}, &BadKeyError{Resource: r.resource, Key: key, Why: field(reply, 2)}
	}
	return grant{}, unexpected("acquire", r.resource, reply)
}

func (s scripts) runReissue(ctx context.Context, resource string, k keys, nonce token.Nonce, fence token.Token, idle time.Duration) (string, token.Token, error) {
	reply, err := s.reissue.Run(ctx, s.client, []string{k.lease, k.counter},
		nonce.Hex(), fence.String(), milliseconds(idle)).Slice()
	if err != nil {
		return "", 0, interpret(ctx, "reissue", resource, err)
	}
	if field(reply, 0) != replyReissued {
		return field(reply, 0), 0, nil
	}
	tok, err := token.Parse(field(reply, 1))
	if err != nil {
		return "", 0, unexpected("reissue", resource, reply)
	}
	return replyReissued, tok, nil
}

func (s scripts) runRenew(ctx context.Context, resource string, k keys, nonce token.Nonce, ttl time.Duration) (string, error) {
	reply, err := s.renew.Run(ctx, s.client, []string{k.lease}, nonce.Hex(), milliseconds(ttl)).Text()
	return reply, interpret(ctx, "renew", resource, err)
}

func (s scripts) runRelease(ctx context.Context, resource string, k keys, nonce token.Nonce) (string, error) {
	reply, err := s.remove.Run(ctx, s.client, []string{k.lease}, nonce.Hex()).Text()
	return reply, interpret(ctx, "release", resource, err)
}

// field returns the text at index i of a reply, "" where there is none.
func field(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

func unexpected(verb, resource string, reply any) error {
	return fmt.Errorf("%w: %s %q: reply %v", ErrUnavailable, verb, resource, reply)
}
