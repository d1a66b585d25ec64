package load

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/lease"
)

// lookEvery is the mean pause between two looks at a lease.
const lookEvery = 5 * time.Millisecond

// leaseStep acquires a lease, looks at it for a while, and releases it. It is a turn of the workload Lease.
func (t *thread) leaseStep(ctx context.Context, from leaser) error {
	bounded, cancel := context.WithTimeout(ctx, t.config.Attempt)
	defer cancel()
	granted := t.op(history.Grant)
	granted.Resource = resourceOf(name(t.random.IntN(t.config.Groups), 0))
	var l *lease.Lease
	err := t.doing(granted, func() (err error) {
		l, err = from.Acquire(bounded, granted.Resource, t.config.TTL, nil)
		if err == nil {
			granted.Lease, granted.Token = granted.ID, uint64(l.Token())
		}
		return err
	})
	if l == nil {
		if mistaken(err) {
			return err
		}
		_ = wait.For(ctx, lookEvery) // as above
		return nil
	}
	if err := t.watch(ctx, l, granted); err != nil {
		return err
	}
	released := t.of(granted, history.Release)
	_ = t.doing(released, func() error { return l.Release(ctx) }) // its outcome is recorded
	return nil
}

// watch records whether the lease is held, until it is not or until it has been held for long enough.
func (t *thread) watch(ctx context.Context, l *lease.Lease, granted *history.Op) error {
	longest := t.config.TTL / 10
	if t.random.IntN(8) == 0 {
		longest = 2 * t.config.TTL // long enough for renewals
	}
	until := history.Now() + time.Duration(t.random.Int64N(int64(longest)))
	for history.Now() < until && ctx.Err() == nil {
		o := t.of(granted, history.Belief)
		if err := t.doing(o, func() error {
			o.Found = l.Err() == nil
			return nil
		}); err != nil {
			return err
		}
		if !o.Found {
			return nil
		}
		_ = wait.For(ctx, time.Duration(t.random.Int64N(int64(2*lookEvery)))) // the loop looks at ctx
	}
	return nil
}

// of makes an operation on a lease that was granted.
func (t *thread) of(granted *history.Op, kind history.Kind) *history.Op {
	o := t.op(kind)
	o.Resource, o.Lease, o.Token = granted.Resource, granted.Lease, granted.Token
	return o
}
