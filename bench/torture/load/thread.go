package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// thread is one goroutine of a worker, which does one operation after the other.
type thread struct {
	config  *Config
	mode    *mode
	record  *history.Recorder
	random  *rand.Rand
	process string
	name    string // begins the IDs of its operations
	done    int
}

func newThread(c *Config, m *mode, r *history.Recorder, number int) *thread {
	process := fmt.Sprintf("%d.%d", c.Worker, c.Life)
	// A thread's operations depend on nothing but its place in the run.
	place := uint64(c.Worker)<<32 | uint64(c.Life)<<16 | uint64(number)
	return &thread{
		config: c, mode: m, record: r, random: rand.New(rand.NewPCG(c.Seed, place)),
		process: process, name: fmt.Sprintf("%s.%d", process, number),
	}
}

// op makes an operation on some rows of one or several groups.
func (t *thread) op(kind history.Kind, rows ...string) *history.Op {
	t.done++
	o := &history.Op{
		ID: fmt.Sprintf("%s.%d", t.name, t.done), Process: t.process, Kind: kind, Rows: rows,
	}
	if len(rows) > 0 {
		o.Resource = resourceOf(rows[0])
	}
	if o.Writes() {
		o.Mark = o.ID
	}
	return o
}

// doing records an operation with its outcome.
func (t *thread) doing(o *history.Op, do func() error) error {
	if err := t.record.Begin(o); err != nil {
		return err
	}
	err := do()
	answer(o, err)
	if o.Outcome == "" {
		o.Outcome, o.Error = outcomeOf(err, t.config.Mode.Fenced())
	}
	if recorded := t.record.End(o); recorded != nil {
		return recorded
	}
	return err
}

// answer sets the outcome of an operation whose error is an answer: there was no row, or there was one already.
func answer(o *history.Op, err error) {
	switch {
	case o.Kind == history.Insert && errors.Is(err, fencepost.ErrExists):
		o.Outcome, o.Found = history.OK, true
	case (o.Kind == history.Get || o.Kind == history.Delete) && errors.Is(err, fencepost.ErrNotFound):
		o.Outcome, o.Found = history.OK, false
	case o.Kind == history.Delete && err == nil:
		o.Outcome, o.Found = history.OK, true
	}
}

// step does one turn of the workload: operations under one lease, or one call that does it all.
func (t *thread) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.config.Attempt)
	defer cancel()
	var err error
	if t.mode.hold == nil || t.mode.do != nil && t.random.IntN(3) == 0 {
		err = t.direct(ctx)
	} else {
		err = t.held(ctx)
	}
	if mistaken(err) {
		return err
	}
	if err != nil {
		// As a program would: it does not send the next request at once when something is wrong.
		_ = wait.For(ctx, time.Duration(t.random.Int64N(int64(t.config.TTL/20))))
	}
	return nil
}

// direct does one operation in one call.
func (t *thread) direct(ctx context.Context) error {
	o := t.next(false)
	if o.Kind == history.Once {
		return t.doing(o, func() (err error) {
			o.WroteN, err = t.mode.doOnce(ctx, o.Resource, o.Mark, t.effect(o))
			return err
		})
	}
	o.Lease = o.ID
	return t.doing(o, func() error {
		return t.mode.do(ctx, o.Resource, func(ctx context.Context, token uint64, in rows) error {
			o.Token = token
			return t.act(ctx, o, in)
		})
	})
}

// most is how many operations a thread does under one lease.
const most = 3

// held acquires what an operation needs, and does it and some more.
func (t *thread) held(ctx context.Context) error {
	first := t.next(true)
	granted := t.op(history.Grant)
	granted.Resource = first.Resource
	err := t.record.Begin(granted)
	if err != nil {
		return err
	}
	err = t.mode.hold(ctx, resourcesOf(first), func(ctx context.Context, h *hold) error {
		granted.Lease, granted.Token, granted.Outcome = granted.ID, h.token(first.Resource), history.OK
		if err := t.record.End(granted); err != nil {
			return err
		}
		for o, n := first, 1+t.random.IntN(most); n > 0; n-- {
			if err := t.under(ctx, h, granted, o); err != nil {
				return err
			}
			if o = t.next(true); len(resourcesOf(o)) > 1 || o.Resource != first.Resource {
				break
			}
		}
		return nil
	})
	if granted.Outcome == "" {
		granted.Outcome, granted.Error = outcomeOf(err, true)
		err = errors.Join(err, t.record.End(granted))
	}
	return err
}

// under does an operation under a lease.
func (t *thread) under(ctx context.Context, h *hold, granted, o *history.Op) error {
	o.Lease, o.Token = granted.Lease, h.token(o.Resource)
	return t.doing(o, func() (err error) {
		switch o.Kind {
		case history.Once:
			o.WroteN, err = h.once(ctx, o.Mark, t.effect(o))
			return err
		case history.Transfer, history.Sum:
			return h.tx(ctx, func(ctx context.Context, in rows) error { return t.act(ctx, o, in) })
		case history.Put, history.Change:
			if t.random.IntN(3) == 0 {
				return h.tx(ctx, func(ctx context.Context, in rows) error { return t.act(ctx, o, in) })
			}
		default:
		}
		return t.act(ctx, o, h.rows)
	})
}

func resourcesOf(o *history.Op) []string {
	var all []string
	for i, row := range o.Rows {
		if r := resourceOf(row); i == 0 || r != all[len(all)-1] {
			all = append(all, r)
		}
	}
	return all
}

// think pauses between reading and writing: mostly not at all, and now and then for as long as a lease lasts, so that
// others take over meanwhile.
func (t *thread) think(ctx context.Context) error {
	longest := 5 * time.Millisecond
	switch n := t.random.IntN(100); {
	case n < 50:
		return nil
	case n >= 95:
		longest = t.config.TTL
	case n >= 85:
		longest = t.config.TTL / 5
	}
	return wait.For(ctx, time.Duration(t.random.Int64N(int64(longest))))
}
