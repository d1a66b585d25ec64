package lease

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

//go:embed lua/evict.lua
var evictLua string

//go:embed lua/raise.lua
var raiseLua string

// Evict takes the lease that was seen away from its holder and hands it on, to the first waiter or to nobody. It
// changes nothing, and returns false, if the lease meanwhile has another holder, or the same one with another token.
// Over a quorum it also takes the shares of candidates that were seen beside the holder: they ask again.
//
// The holder learns of it at its next renewal, and may work until then. So raise the fence above seen.Token first:
// otherwise the holder's claim stays good until the next claim. Errors: ErrUnavailable; the lease then ends with its
// TTL at the latest. ctx bounds the call.
func (i *Inspector) Evict(ctx context.Context, seen Sight) (evicted bool, err error) {
	if seen.found == nil || seen.Token == 0 {
		return false, nil
	}
	for n, f := range seen.found() {
		if f.standing != Held {
			continue
		}
		ours, err := i.evictAt(ctx, i.nodes[n], seen.Resource, f)
		if err != nil {
			return evicted, interpret(ctx, "evict", seen.Resource, err)
		}
		evicted = evicted || ours
	}
	return evicted, nil
}

// evictAt takes the lease over under a nonce of its own and releases that.
func (i *Inspector) evictAt(ctx context.Context, node *scripts, resource string, f found) (bool, error) {
	id := ident{resource: resource, keys: keysOf(i.prefix, resource)}
	nonce := token.NewNonce().Hex()
	id.secret = nonce
	word, err := newScript(evictLua).Run(ctx, node.client, []string{id.keys.lease}, f.secret,
		f.token.String(), nonce).Text()
	if err != nil || word != "evicted" {
		return false, err
	}
	_, err = node.handOn(ctx, id, false)
	if slotMoves(err) {
		err = fmt.Errorf("the slot is moving, and the lease ends with its TTL: %w", err)
	}
	return err == nil, err
}

// Floor is a token that the next grant of a resource should exceed.
type Floor struct {
	Resource string
	Token    token.Token
}

// RaiseCounters raises the counters of resources to tokens, on every server, and returns of how many resources a
// counter was below. It lowers none, so it may be repeated. A counter that is not a number is left alone: its next
// grant is ErrBadKey. One of another type is an error. Counters that it creates expire after CounterIdle. Errors:
// ErrInvalid, ErrUnavailable. ctx bounds the call.
func (i *Inspector) RaiseCounters(ctx context.Context, floors []Floor) (raised int, err error) {
	for _, f := range floors {
		if err := checkResource(f.Resource); err != nil {
			return 0, err
		}
	}
	below := make([]bool, len(floors))
	for _, node := range i.nodes {
		if err := i.raiseAt(ctx, node.client, floors, below); err != nil {
			return 0, interpret(ctx, "raise counters of", i.prefix, err)
		}
	}
	for _, b := range below {
		if b {
			raised++
		}
	}
	return raised, nil
}

func (i *Inspector) raiseAt(ctx context.Context, client redis.UniversalClient, floors []Floor, below []bool) error {
	script := newScript(raiseLua)
	send := func(at []int,
		evaluate func(p redis.Pipeliner, keys []string, args ...any) *redis.Cmd,
	) (unknown []int, err error) {
		replies := make([]*redis.Cmd, len(at))
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			for r, f := range at {
				keys := []string{keysOf(i.prefix, floors[f].Resource).counter}
				replies[r] = evaluate(p, keys, floors[f].Token.String(), milliseconds(i.idle))
			}
			return nil
		})
		for r, reply := range replies {
			switch word, replyErr := reply.Text(); {
			case redis.HasErrorPrefix(replyErr, "NOSCRIPT"):
				unknown = append(unknown, at[r])
			case replyErr != nil:
				err = errors.Join(err, replyErr)
			default:
				below[at[r]] = below[at[r]] || word == "raised"
			}
		}
		return unknown, err
	}
	all := make([]int, len(floors))
	for f := range all {
		all[f] = f
	}
	unknown, err := send(all, func(p redis.Pipeliner, keys []string, args ...any) *redis.Cmd {
		return script.EvalSha(ctx, p, keys, args...)
	})
	if err != nil || len(unknown) == 0 {
		return err
	}
	_, err = send(unknown, func(p redis.Pipeliner, keys []string, args ...any) *redis.Cmd {
		return script.Eval(ctx, p, keys, args...)
	})
	return err
}
