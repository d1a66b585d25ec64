package nemesis

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Fault is one way of breaking things.
type Fault struct {
	Name string
	// Kept: Redis forgets no lease, and no lease lasts longer than it should. Leases alone exclude each other then.
	Kept bool
	// Redis: it needs a Redis. Spare: it needs a second one, which no quorum has.
	Redis, Spare bool
	strike       func(ctx context.Context, s *Stage) (target string, err error)
}

// All returns all faults.
func All() []Fault {
	return []Fault{
		{Name: "pause", Kept: true, strike: pause},
		{Name: "kill", Kept: true, strike: kill},
		{Name: "starve", Kept: true, strike: starve},
		{Name: "clock", Kept: true, strike: jump},
		{Name: "redis-flush", Redis: true, strike: flush},
		{Name: "redis-keys", Redis: true, strike: spoil},
		{Name: "redis-evict", Redis: true, strike: evict},
		{Name: "redis-hang", Kept: true, Redis: true, strike: hangRedis},
		{Name: "redis-restart", Kept: true, Redis: true, strike: restartRedis},
		{Name: "redis-empty", Redis: true, strike: emptyRedis},
		{Name: "redis-snapshot", Redis: true, strike: restoreOlder},
		{Name: "redis-failover", Redis: true, Spare: true, strike: failOver},
		{Name: "redis-split", Redis: true, Spare: true, strike: split},
		{Name: "net-delay", Kept: true, strike: delay},
		{Name: "net-hang", Kept: true, strike: hangNetwork},
		{Name: "net-cut", Kept: true, strike: cut},
		{Name: "net-commit", Kept: true, strike: loseCommit},
		{Name: "pg-backends", Kept: true, strike: terminate},
		{Name: "pg-stop", Kept: true, strike: stopBackend},
		{Name: "pg-crash", Kept: true, strike: crash},
	}
}

// Choose returns the faults that a list of names means. "all" means all, "kept" those after which leases still exclude
// each other, and a name that ends in "-" all that begin with it. Those that do not apply to so many servers are left
// out.
func Choose(list string, servers int) ([]Fault, error) {
	var chosen []Fault
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, f := range All() {
			if !f.is(name) {
				continue
			}
			found = true
			if f.applies(servers) && !slices.ContainsFunc(chosen, func(c Fault) bool { return c.Name == f.Name }) {
				chosen = append(chosen, f)
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
	}
	return chosen, nil
}

func (f Fault) is(name string) bool {
	return name == "all" || name == "kept" && f.Kept || name == f.Name ||
		strings.HasSuffix(name, "-") && strings.HasPrefix(f.Name, name)
}

func (f Fault) applies(servers int) bool {
	return (!f.Redis || servers > 0) && (!f.Spare || servers == 1)
}

// Kept reports whether leases exclude each other under all of these faults.
func Kept(faults []Fault) bool {
	return !slices.ContainsFunc(faults, func(f Fault) bool { return !f.Kept })
}
