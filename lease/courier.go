package lease

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// courier carries script calls to Redis without keeping those who make them: go-redis does not let a
// context interrupt a command under way. Calls made while others are under way travel together, in
// one pipeline, which costs a busy process much less than a goroutine and a round trip for each.
type courier struct {
	client *redis.Client

	mu      sync.Mutex
	waiting []*parcel
	senders int
	relief  *time.Timer // looks after parcels that wait; nil or stopped where none does
	looking bool        // relief is set
}

const (
	// fewSenders serve a server that answers; the fewer, the more calls travel together.
	fewSenders = 4
	// manySenders bounds those that go while others hang.
	manySenders = 16
	// reliefAfter is how long a parcel waits for a sender that may hang, before another goes.
	reliefAfter = 5 * time.Millisecond
	// maxTogether bounds one pipeline.
	maxTogether = 128
)

// newCourier returns nil for a client of several servers: one that hangs would hold up calls to all others.
func newCourier(client redis.UniversalClient) *courier {
	one, ok := client.(*redis.Client)
	if !ok {
		return nil
	}
	return &courier{client: one}
}

// parcel is one call.
type parcel struct {
	ctx    context.Context //nolint:containedctx // the caller's; once sent, a call is not ended by it
	script *redis.Script
	keys   []string
	args   []any

	done  chan struct{} // closed once reply and err are there
	reply any
	err   error
}

// errNotSent is the end of a call that nobody waited for any more by the time it could be sent.
var errNotSent = errors.New("given up before it was sent")

// take takes a call and returns at once. ctx gives it its values; should it end before the call could be sent,
// the call is not made, and ends with errNotSent: what hung and answers again is not to be busy with granting
// leases to nobody.
func (c *courier) take(ctx context.Context, script *redis.Script, keys []string, args ...any) *parcel {
	p := &parcel{ctx: ctx, script: script, keys: keys, args: args, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, p)
	if c.senders < fewSenders {
		c.senders++
		go c.send()
	} else if !c.looking {
		c.look()
	}
	return p
}

// look has a look taken at those who wait. Called with mu held.
func (c *courier) look() {
	c.looking = true
	if c.relief == nil {
		c.relief = time.AfterFunc(reliefAfter, c.relieve)
	} else {
		c.relief.Reset(reliefAfter)
	}
}

// relieve sends another where parcels still wait: the others may hang.
func (c *courier) relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking = false
	if len(c.waiting) == 0 {
		return
	}
	if c.senders < manySenders {
		c.senders++
		go c.send()
	}
	c.look()
}

// send delivers what is waiting, and ends when nothing is.
func (c *courier) send() {
	for {
		runtime.Gosched() // who has just been answered may have another call to make
		batch := c.next()
		if len(batch) == 0 {
			return
		}
		c.deliver(batch)
	}
}

// next takes what is to be sent now. Where nothing is, the sender that asks is none any more.
func (c *courier) next() []*parcel {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		batch := c.waiting[:min(len(c.waiting), maxTogether)]
		c.waiting = c.waiting[len(batch):]
		if batch = slices.DeleteFunc(batch, (*parcel).givenUp); len(batch) > 0 {
			return batch
		}
	}
	c.waiting = nil
	c.senders--
	return nil
}

// givenUp ends a call that nobody waits for.
func (p *parcel) givenUp() bool {
	if p.ctx.Err() == nil {
		return false
	}
	p.err = errNotSent
	close(p.done)
	return true
}

// deliver sends calls together. go-redis is given the values of the first caller's context for all of them.
func (c *courier) deliver(batch []*parcel) {
	if len(batch) == 1 {
		batch[0].run(c.client)
		return
	}
	pipe := c.client.Pipeline()
	answers := make([]*redis.Cmd, len(batch))
	for i, p := range batch {
		answers[i] = pipe.EvalSha(p.ctx, p.script.Hash(), p.keys, p.args...)
	}
	_, _ = pipe.Exec(context.WithoutCancel(batch[0].ctx)) // each command has its own error
	for i, p := range batch {
		if err := answers[i].Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			go p.run(c.client) // a pipeline does not fall back by itself
			continue
		}
		p.reply, p.err = answers[i].Result()
		close(p.done)
	}
}

func (p *parcel) run(client *redis.Client) {
	p.reply, p.err = p.script.Run(context.WithoutCancel(p.ctx), client, p.keys, p.args...).Result()
	close(p.done)
}

// future is what a call will have brought once it is done.
type future[T any] struct {
	done  <-chan struct{}
	value func() (T, error)
}

// async makes a call in a goroutine of its own.
func async[T any](call func() (T, error)) future[T] {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = call()
	}()
	return future[T]{done, func() (T, error) { return value, err }}
}

// settled is a call that has been made.
func settled[T any](value T, err error) future[T] {
	done := make(chan struct{})
	close(done)
	return future[T]{done, func() (T, error) { return value, err }}
}

// await returns early when ctx ends. late, where it is not nil, waits for the call that was left behind and
// returns its error; there is then neither value nor error.
func (f future[T]) await(ctx context.Context) (value T, late func() error, err error) {
	select {
	case <-f.done:
		value, err = f.value()
		return value, nil, err
	case <-ctx.Done():
		return value, func() error {
			_, err := f.wait()
			return err
		}, nil
	}
}

// wait returns what the call has brought, once it is done.
func (f future[T]) wait() (T, error) {
	<-f.done
	return f.value()
}
