// Package held measures what leases cost while they are held: memory, renewals, and the processor's time.
package held

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/lease"
)

// Plan says how leases are held.
type Plan struct {
	// Client leads to the server. Nobody else may use it in the meantime.
	Client redis.UniversalClient
	// Prefix begins every key.
	Prefix string
	// TTL is that of the leases. They are renewed every third of it, and watched for as long.
	TTL time.Duration
	// Callers is how many goroutines acquire and release at the same time.
	Callers int
}

// Sample is what was measured of a number of leases.
type Sample struct {
	// Bytes is heap and stacks of one lease, with all that belongs to it.
	Bytes float64
	// Renewals is how often a lease was renewed in a third of its TTL.
	Renewals float64
	// CPU is the processor's time of this process for one renewal, in microseconds.
	CPU float64
}

// ErrLost says that a lease was lost while it was held.
var ErrLost = errors.New("a lease was lost")

// Measure acquires n leases, watches them, and releases them.
func Measure(ctx context.Context, p Plan, n int) (s Sample, err error) {
	var renewed renewals
	p.Client.AddHook(&renewed)
	manager, err := lease.NewManager(p.Client, &lease.Options{Prefix: p.Prefix})
	if err != nil {
		return Sample{}, err
	}
	before := memory()
	all, err := p.acquire(ctx, manager, n)
	defer func() { err = errors.Join(err, p.release(context.WithoutCancel(ctx), all)) }()
	if err != nil {
		return Sample{}, err
	}
	s.Bytes = float64(memory()-before) / float64(n)
	renewed.count.Store(0)
	began := cpu()
	if err := wait.For(ctx, p.TTL/3); err != nil {
		return Sample{}, err
	}
	took, count := cpu()-began, renewed.count.Load()
	s.Renewals = float64(count) / float64(n)
	s.CPU = float64(took.Microseconds()) / float64(max(count, 1))
	return s, nothingLost(all)
}

// memory is what the heap and the stacks take after a collection.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func (p Plan) acquire(ctx context.Context, manager *lease.Manager, n int) ([]*lease.Lease, error) {
	all := make([]*lease.Lease, n)
	err := p.each(n, func(i int) (err error) {
		all[i], err = manager.Acquire(ctx, fmt.Sprintf("held-%d-%d", n, i), p.TTL, nil)
		return err
	})
	return all, err
}

func (p Plan) release(ctx context.Context, all []*lease.Lease) error {
	return p.each(len(all), func(i int) error {
		if all[i] == nil {
			return nil
		}
		return all[i].Release(ctx)
	})
}

// each calls fn for 0 to n-1, and returns the first error of each caller.
func (p Plan) each(n int, fn func(i int) error) error {
	errs := make([]error, p.Callers)
	var next atomic.Int64
	var callers sync.WaitGroup
	for c := range p.Callers {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := fn(int(i)); err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}

func nothingLost(all []*lease.Lease) error {
	for _, l := range all {
		if err := l.Err(); err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return nil
}
