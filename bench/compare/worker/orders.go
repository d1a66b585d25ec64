package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// The orders, each a JSON string.
const (
	orderStart    = "start"
	orderStop     = "stop"
	orderPause    = "pause-next"
	orderAnnounce = "announce-next"
	orderGoOn     = "go on"
	orderClock    = "clock " // and a duration with its sign
)

// carryOut returns what carries out an order. It returns an error of an order that there is not.
func (w *worker) carryOut() func(order string) error {
	start, stop := sync.OnceFunc(func() { close(w.start) }), sync.OnceFunc(func() { close(w.stop) })
	return func(order string) error {
		switch order {
		case orderStart:
			start()
		case orderStop:
			stop()
		case orderPause, orderAnnounce:
			w.gate.set(order)
		case orderGoOn:
			w.gate.open()
		default:
			by, err := time.ParseDuration(strings.TrimPrefix(order, orderClock))
			if err != nil || !strings.HasPrefix(order, orderClock) {
				return fmt.Errorf("there is no order %q", order)
			}
			w.clock.step(by)
		}
		return nil
	}
}

// gate is what waits at Between.
type gate struct {
	order atomic.Pointer[string]
	goOn  chan struct{} // room for one
}

func (g *gate) set(order string) {
	select {
	case <-g.goOn: // of an announcement that nobody waited for any more
	default:
	}
	g.order.Store(&order)
}

func (g *gate) open() {
	select {
	case g.goOn <- struct{}{}:
	default: // it is open
	}
}

// between does what was ordered for the next time. The attempt's own context does not end it: a worker that
// computes does not look at one.
func (w *worker) between(ctx context.Context, id string) error {
	order := w.gate.order.Swap(nil)
	if order == nil {
		return nil
	}
	w.report(Event{What: IsBetween, ID: id, ClockReads: w.clock.readsSinceStep()})
	if *order == orderPause {
		return process.StopSelf()
	}
	select {
	case <-w.gate.goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// clock is a wall clock that jumps when told to. It is safe for concurrent use.
type clock struct {
	mu      sync.Mutex
	ahead   time.Duration
	stepped bool
	reads   int64 // since it jumped last
}

func (c *clock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	c.stepped, c.reads = true, 0
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stepped {
		c.reads++
	}
	return time.Now().Add(c.ahead)
}

func (c *clock) readsSinceStep() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}
