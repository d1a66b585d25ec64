package lease

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// batcher sends script calls to Redis, several in one pipeline. Its callers need not wait for a reply: go-redis does
// not let a context interrupt a command in flight. Calls made while others are in flight are sent together, which costs
// a busy process much less than a goroutine and a round trip for each.
type batcher struct {
	client *redis.Client
	trips  *trips
	yields bool // senders let calls gather first; see ofQuorum

	mu       sync.Mutex
	waiting  []*scriptCall
	senders  int
	watchdog *time.Timer // fires while calls wait; nil or stopped if none do
	watching bool        // the watchdog is set

	used  sync.Pool // of calls that have ended
	start func()    // send; made once
}

const (
	// fewSenders start for a call each. More calls at a time wait for a sender to come back, and travel together.
	fewSenders = 4
	// someSenders is the most for a server that answers. A sender that comes back and finds calls waiting need not be
	// started or woken, which costs more than the pipeline; and with several under way, the server is never idle.
	someSenders = 8
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
	b := &batcher{client: one, trips: t}
	b.start = b.send
	return b
}

// ofQuorum makes this the batcher of one node of a quorum. Each call then has a goroutine for every node, so the cores
// are busy anyway, and fewer pipelines count for more than a sender that goes on at once.
func (b *batcher) ofQuorum() {
	if b != nil {
		b.yields = true
	}
}

// scriptCall is one call of a script. It is used again once its caller has read the reply.
type scriptCall struct {
	ctx      context.Context //nolint:containedctx // the caller's; it does not end a call once sent
	detached context.Context //nolint:containedctx // ctx without its end
	script   *script
	command  []any
	left     atomic.Bool // the caller has left; a call that has not been sent is not made

	done  chan struct{} // receives once reply and err are set
	limit *time.Timer   // nil before the first call that has a time limit
	reply any
	err   error
}

// newScriptCall returns a call that is used once.
func newScriptCall(ctx, detached context.Context, script *script, command []any) *scriptCall {
	return &scriptCall{ctx: ctx, detached: detached, script: script, command: command, done: make(chan struct{}, 1)}
}

// errNotSent is the error of a call whose caller left before it could be sent.
var errNotSent = errors.New("given up before it was sent")

// take queues a call and returns at once. detached, which is ctx without its end, supplies the call's values. If ctx
// ends before the call is sent, the call is not made and ends with errNotSent: a server that hung and answers again
// must not grant leases to callers that have left.
func (b *batcher) take(ctx, detached context.Context, script *script, command []any) *scriptCall {
	p, used := b.used.Get().(*scriptCall)
	if !used {
		p = newScriptCall(ctx, detached, script, command)
	} else {
		p.ctx, p.detached, p.script, p.command = ctx, detached, script, command
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, p)
	many := !b.yields && b.senders < someSenders && 2*len(b.waiting) > b.senders
	if b.senders < fewSenders || many {
		b.senders++
		go b.start()
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
		go b.start()
	}
	b.watch()
}

// send sends the calls that wait, and returns once the queue is empty.
func (b *batcher) send() {
	var room [maxTogether]*scriptCall
	for {
		if b.yields {
			runtime.Gosched() // a caller that was just answered may make another call
		}
		batch := b.next(room[:0])
		if len(batch) == 0 {
			return
		}
		b.deliver(batch)
		clear(batch)
	}
}

// next moves the next batch from the queue to room. If the queue is empty, the sender exits.
func (b *batcher) next(room []*scriptCall) []*scriptCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		n := min(len(b.waiting), maxTogether)
		batch := append(room, b.waiting[:n]...)
		b.waiting = slices.Delete(b.waiting, 0, n)
		if batch = slices.DeleteFunc(batch, (*scriptCall).givenUp); len(batch) > 0 {
			return batch
		}
	}
	b.senders--
	return nil
}

// givenUp ends a call whose caller has left, and reports whether it did.
func (p *scriptCall) givenUp() bool {
	if p.ctx.Err() == nil && !p.left.Load() {
		return false
	}
	p.end(nil, errNotSent)
	return true
}

func (p *scriptCall) end(reply any, err error) {
	p.reply, p.err = reply, err
	p.done <- struct{}{}
}

// await waits for the reply of a call, until ctx ends or the time limit has passed; 0 is no limit. If there is no reply
// by then, pending is not nil: it waits for the call to end and returns its error.
func (b *batcher) await(
	ctx context.Context,
	p *scriptCall,
	within time.Duration,
) (reply any, pending func() error, err error) {
	var late <-chan time.Time
	if within > 0 {
		p.arm(within)
		late = p.limit.C
	}
	select {
	case <-p.done:
		reply, err = b.recycle(p)
		return reply, nil, err
	case <-ctx.Done():
	case <-late:
	}
	return nil, func() error {
		<-p.done
		return p.err
	}, nil
}

func (p *scriptCall) arm(d time.Duration) {
	if p.limit == nil {
		p.limit = time.NewTimer(d)
	} else {
		p.limit.Reset(d)
	}
}

// recycle takes the result of a call that has ended, for another call to use it. Nobody else may hold on to it.
func (b *batcher) recycle(p *scriptCall) (reply any, err error) {
	reply, err = p.reply, p.err
	if p.limit != nil {
		p.limit.Stop() // before another call can set it
	}
	p.ctx, p.detached, p.script, p.command, p.reply, p.err = nil, nil, nil, nil, nil, nil
	b.used.Put(p)
	return reply, err
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
		answers[i] = evaluation(p.detached, p.command)
		_ = pipe.Process(p.detached, answers[i]) // it is queued
	}
	_, err := pipe.Exec(batch[0].detached) // each command has its own error
	b.trips.ended(began, err)
	for i, p := range batch {
		if err := answers[i].Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			go b.run(p, time.Now()) // a pipeline does not fall back by itself
			continue
		}
		p.end(answers[i].Result())
	}
}

// run sends one call alone.
func (b *batcher) run(p *scriptCall, began time.Time) {
	reply, err := p.script.run(p.detached, b.client, p.command)
	b.trips.ended(began, err)
	p.end(reply, err)
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

// await returns early when ctx ends or the time limit has passed; 0 is no limit. It then returns neither a value nor an
// error, and pending is not nil: pending waits for the call to end and returns its error.
func (f future[T]) await(ctx context.Context, limit time.Duration) (value T, pending func() error, err error) {
	var late <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-f.done:
		value, err = f.value()
		return value, nil, err
	case <-ctx.Done():
	case <-late:
	}
	select { // an answer that is there counts, although the time is up
	case <-f.done:
		value, err = f.value()
		return value, nil, err
	default:
	}
	return value, func() error {
		<-f.done
		_, err := f.value()
		return err
	}, nil
}

// bounded returns ctx with a time limit; 0 is no limit.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// detach returns ctx without its end.
func detach(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}
