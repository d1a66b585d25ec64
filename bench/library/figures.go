package library

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// Workers is how many goroutines call at the same time. Each has resources and rows of its own.
const Workers = 8

// Servers are what figures are measured on. All candidates share them.
type Servers struct {
	// Pool leads to a database with fencepost's migrations that nobody else uses.
	Pool *pgxpool.Pool
	// Grown leads to another such database, for what depends on how much there is.
	Grown *pgxpool.Pool
	// Fences is how many are made there.
	Fences int
	// Rows is how many a load copies, a power of ten.
	Rows int
	// Redis is the client of all candidates.
	Redis redis.UniversalClient
	// Name begins every Redis key, after at most one constant word.
	Name string
	// Schema is the schema of the tables that figures make.
	Schema string
	// Far leads to the same servers by a longer way, with a name and a schema of its own.
	Far *Servers
}

// Figure is one job to measure.
type Figure struct {
	// Name is short, for the command line.
	Name string
	// Prepare makes what the candidates need on the servers.
	Prepare func(context.Context, Servers) (measure.Comparison, error)
	// MaxRounds bounds the rounds of a job that writes many rows at once, which one goroutine does alone. 0: no such
	// job.
	MaxRounds int
}

// Plan is what the figure takes of a plan.
func (f Figure) Plan(p measure.Plan) measure.Plan {
	if f.MaxRounds > 0 {
		p.Rounds, p.Workers = min(p.Rounds, f.MaxRounds), 1
	}
	return p
}

// All returns every figure.
func All() []Figure {
	return []Figure{
		{Name: "store", Prepare: store},
		{Name: "lease", Prepare: lease},
		{Name: "fence", Prepare: fencedUpdate},
		{Name: "table", Prepare: tableUpdate},
		{Name: "far-store", Prepare: far(store, map[string]float64{doName: 0.8, acquireName: 1})},
		{Name: "far-lease", Prepare: far(lease, nil)},
		{Name: "far-fence", Prepare: far(fencedUpdate, nil)},
		{Name: "far-table", Prepare: far(tableUpdate, nil)},
		{Name: "advisory", Prepare: besideAdvisory},
		{Name: "forupdate", Prepare: besideForUpdate},
		{Name: "tx", Prepare: txOfMany, MaxRounds: 40},
		{Name: "goroutines", Prepare: goroutinesOfDo},
		{Name: "goroutines-lease", Prepare: goroutinesOfLease},
		{Name: "protection", Prepare: onProtected},
		{Name: "claims", Prepare: claimsOfBatch},
		{Name: "guards", Prepare: guardsOfBatch},
		{Name: "batch", Prepare: updateBatch, MaxRounds: 40},
		{Name: "load", Prepare: loadBatch, MaxRounds: 12},
		{Name: "import", Prepare: importEach, MaxRounds: 2},
	}
}
