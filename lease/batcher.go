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

// batcher sends script calls to Redis, several in one pipeline. Its callers need not wait for a reply: go-redis does
// not let a context interrupt a command in flight. Calls made while others are in flight are sent together, which costs
// a busy process much less than a goroutine and a round trip for each.
type batcher struct {
	client *redis.Client
	trips  *trips

	mu       sync.Mutex
	waiting  []*scriptCall
	senders  int
	watchdog *time.Timer // fires while calls wait; nil or stopped if none do
	watching bool        // the watchdog is set
}

const (
	// fewSenders is the number of senders for a server that answers. The fewer, the more calls travel together.
	fewSenders = 4
	// manySenders bounds the senders while some of them hang.
	manySenders = 16
	// watchdogAfter is how long a call waits for senders that may hang, before another sender starts.
	watchdogAfter = 5 * time.Millisecond
	// maxTogether bounds one pipeline.
	maxTogether = 128
)

// newBatcher returns nil for a client of several servers: one server that hangs would hold up calls to all others.
func newBatcher(client redis.UniversalClient, t *trips) *batcher {
	one, ok := client.(*redis.Client)
	if !ok {
		return nil
	}
	return &batcher{client: one, trips: t}
}

// scriptCall is one call of a script.
type scriptCall struct {
	ctx    context.Context //nolint:containedctx // the caller's; it does not end a call once sent
	script *redis.Script
	keys   []string
	args   []any

	done  chan struct{} // closed once reply and err are set
	reply any
	err   error
}

func newScriptCall(ctx context.Context, script *redis.Script, keys []string, args ...any) *scriptCall {
	return &scriptCall{ctx: ctx, script: script, keys: keys, args: args, done: make(chan struct{})}
}

// errNotSent is the error of a call whose caller left before it could be sent.
var errNotSent = errors.New("given up before it was sent")

// take queues a call and returns at once. ctx supplies the call's values. If ctx ends before the call is sent, the call
// is not made and ends with errNotSent: a server that hung and answers again must not grant leases to callers that have
// left.
func (b *batcher) take(ctx context.Context, script *redis.Script, keys []string, args ...any) *scriptCall {
	p := newScriptCall(ctx, script, keys, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, p)
	if b.senders < fewSenders {
		b.senders++
		go b.send()
	} else if !b.watching {
		b.watch()
	}
	return p
}

// watch sets the watchdog. Called with mu held.
func (b *batcher) watch() {
	b.watching = true
	if b.watchdog == nil {
		b.watchdog = time.AfterFunc(watchdogAfter, b.sendAnother)
	} else {
		b.watchdog.Reset(watchdogAfter)
	}
}

// sendAnother starts another sender if calls still wait: the others may hang.
func (b *batcher) sendAnother() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watching = false
	if len(b.waiting) == 0 {
		return
	}
	if b.senders < manySenders {
		b.senders++
		go b.send()
	}
	b.watch()
}

// send sends the calls that wait, and returns once the queue is empty.
func (b *batcher) send() {
	for {
		runtime.Gosched() // a caller that was just answered may make another call
		batch := b.next()
		if len(batch) == 0 {
			return
		}
		b.deliver(batch)
	}
}

// next takes the next batch off the queue. If the queue is empty, the sender exits.
func (b *batcher) next() []*scriptCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		batch := b.waiting[:min(len(b.waiting), maxTogether)]
		b.waiting = b.waiting[len(batch):]
		if batch = slices.DeleteFunc(batch, (*scriptCall).givenUp); len(batch) > 0 {
			return batch
		}
	}
	b.waiting = nil
	b.senders--
	return nil
}

// givenUp ends a call whose caller has left, and reports whether it did.
func (p *scriptCall) givenUp() bool {
	if p.ctx.Err() == nil {
		return false
	}
	p.err = errNotSent
	close(p.done)
	return true
}

// deliver sends calls together. go-redis gets the context values of the first caller for all of them.
func (b *batcher) deliver(batch []*scriptCall) {
	began := time.Now()
	if len(batch) == 1 {
		b.run(batch[0], began)
		return
	}
	pipe := b.client.Pipeline()
	answers := make([]*redis.Cmd, len(batch))
	for i, p := range batch {
		answers[i] = pipe.EvalSha(p.ctx, p.script.Hash(), p.keys, p.args...)
	}
	_, err := pipe.Exec(context.WithoutCancel(batch[0].ctx)) // each command has its own error
	b.trips.ended(began, err)
	for i, p := range batch {
		if err := answers[i].Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			go b.run(p, time.Now()) // a pipeline does not fall back by itself
			continue
		}
		p.reply, p.err = answers[i].Result()
		close(p.done)
	}
}

// run sends one call alone.
func (b *batcher) run(p *scriptCall, began time.Time) {
	p.reply, p.err = p.script.Run(context.WithoutCancel(p.ctx), b.client, p.keys, p.args...).Result()
	b.trips.ended(began, p.err)
	close(p.done)
}

// future is the result of a call that may be in flight.
type future[T any] struct {
	done  <-chan struct{}
	value func() (T, error)
}

// async makes a call in its own goroutine.
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

// settled is the future of a call that has already ended.
func settled[T any](value T, err error) future[T] {
	done := make(chan struct{})
	close(done)
	return future[T]{done, func() (T, error) { return value, err }}
}

// await returns early when ctx ends. It then returns neither a value nor an error, and pending is not nil: pending
// waits for the call to end and returns its error.
func (f future[T]) await(ctx context.Context) (value T, pending func() error, err error) {
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

// wait returns the result of the call once it has ended.
func (f future[T]) wait() (T, error) {
	<-f.done
	return f.value()
}
