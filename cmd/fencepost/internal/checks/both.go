package checks

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

// both compares what Redis has with what PostgreSQL has.
func (r *run) both(ctx context.Context, p *postgres, s *redisServers) {
	if r.opts.Advisory || !r.opts.HasDatabase || len(r.opts.Redis) == 0 {
		return
	}
	c := check{name: "counters", look: func(ctx context.Context) ([]finding, error) {
		if !p.passed["migrations"] || !s.passed {
			return skipped("", "it takes both servers, and the migrations")
		}
		return r.counters(ctx, p, s)
	}}
	r.all(ctx, Both, []check{c})
}

// countFor bounds how long fences are counted. A database may have millions.
const countFor = 10 * time.Second

// counters looks for counters below their fences.
func (r *run) counters(ctx context.Context, p *postgres, s *redisServers) ([]finding, error) {
	site, err := operate.NewSite(p.pool, s.clients, r.opts.Namespace)
	if err != nil {
		return nil, err
	}
	seen, err := site.Behind(ctx, countFor)
	const do = `run "fencepost reseed", which raises them`
	switch {
	case mayNotLook(err):
		return skipped(mayVerify, "this role may not read the fences")
	case err != nil:
		return nil, err
	case seen.Below > 0:
		return warning(do, "%d counters are below their fences: Redis went back to older data (of %d fences)", seen.Below,
			seen.Fences)
	case seen.Missing > 0:
		return warning(do, "%d counters of fences that are in use are missing: Redis lost data (of %d fences)",
			seen.Missing, seen.Fences)
	case seen.More:
		return fine("no counter is below its fence, of the first %d fences", seen.Fences)
	}
	return fine("no counter is below its fence, of %d fences", seen.Fences)
}
