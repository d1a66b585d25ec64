package library

import (
	"context"
	"fmt"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
	leases "github.com/fencepost-pg/fencepost/lease"
)

const (
	// mostGoroutines is far more than there are connections.
	mostGoroutines = 256
	// noFall is the rate that many goroutines should keep of that of as many as there are connections.
	noFall = 0.95
)

// goroutinesOfDo measures how Store.Do bears more goroutines than the pool has connections.
func goroutinesOfDo(ctx context.Context, s Servers) (measure.Comparison, error) {
	store, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return measure.Comparison{}, err
	}
	c, err := do(ctx, s, doing{name: doName, table: "crowd", workers: mostGoroutines, do: store.Do})
	return crowd(c, "write one row by Store.Do, each goroutine on its own resource"), err
}

// goroutinesOfLease measures the same of a lease alone.
func goroutinesOfLease(_ context.Context, s Servers) (measure.Comparison, error) {
	manager, err := leases.NewManager(s.Redis, &leases.Options{Prefix: "fencepost:" + s.Name})
	if err != nil {
		return measure.Comparison{}, err
	}
	return crowd(managed(manager, "crowd"), "acquire and release a lease, each goroutine on its own resource"), nil
}

// crowd measures one candidate with as many goroutines as there are connections, with one, and with many more.
func crowd(c measure.Candidate, title string) measure.Comparison {
	comparison := measure.Comparison{
		Title: fmt.Sprintf("%s; PostgreSQL connections: %d", title, Workers),
	}
	name := c.Name
	for _, n := range []int{Workers, 1, 64, mostGoroutines} {
		c.Name, c.Workers, c.Target = fmt.Sprintf("%s, goroutines: %d", name, n), n, 0
		if n == mostGoroutines {
			c.Target = noFall
		}
		comparison.Candidates = append(comparison.Candidates, c)
	}
	return comparison
}
