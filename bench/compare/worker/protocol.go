package worker

import (
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// Config is what a worker is told first.
type Config struct {
	Mode        string        `json:"mode"`
	Workload    work.Workload `json:"workload"`
	Keyed       bool          `json:"keyed"`
	Seed        uint64        `json:"seed"`
	Worker      int           `json:"worker"` // numbered from 0, each with operations of its own
	PostgresURL string        `json:"postgres_url"`
	RedisURLs   []string      `json:"redis_urls"`
	TTL         time.Duration `json:"ttl"`
	Namespace   string        `json:"namespace"`
	// Unguarded and Unwatched are those of mode.Config.
	Unguarded bool `json:"unguarded"`
	Unwatched bool `json:"unwatched"`
	// Attempt bounds one attempt at an operation, the time in which the worker is stopped included. Default: the longer
	// of 4 s and 8 TTLs.
	Attempt time.Duration `json:"attempt"`
	// Grace is how long a worker that was told to stop may go on with the operation in hand. Default 5 s.
	Grace time.Duration `json:"grace"`
}

const (
	leastAttempt = 4 * time.Second
	defaultGrace = 5 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Attempt == 0 {
		c.Attempt = max(leastAttempt, 8*c.TTL)
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	return c
}

// What tells the events apart.
type What string

// The events.
const (
	IsReady What = "ready" // connections are open; it waits for the order to start
	IsBegun What = "begun" // an operation has begun: ID, Rows
	// an attempt has not been accepted: ID, Outcome, Error, ByPostgres; the operation is tried again
	IsAttempt What = "attempt"
	// it is at Between and was ordered to report that: ID, ClockReads. Then it stops itself, or waits to go on
	IsBetween What = "between"
	// an operation has ended: ID, Rows, Outcome (accepted, or that of the last attempt where time was up)
	IsEnded   What = "ended"
	IsStopped What = "stopped" // the last event of a worker that was told to stop
	IsFailed  What = "failed"  // the last event of a worker that cannot go on: Error
)

// Event is a line from a worker.
type Event struct {
	What    What         `json:"what"`
	ID      string       `json:"id,omitempty"`
	Rows    []int64      `json:"rows,omitempty"`
	Outcome mode.Outcome `json:"outcome,omitempty"`
	Error   string       `json:"error,omitempty"`
	// ByPostgres tells of an attempt that was refused that PostgreSQL did it; see mode.RefusedByPostgres.
	ByPostgres bool `json:"by_postgres,omitempty"`
	// ClockReads is, at Between, how often the mode has read the wall clock since that jumped last; 0 where it has not
	// jumped.
	ClockReads int64 `json:"clock_reads,omitempty"`
	// Doubt tells of an operation that ended that at least one attempt at it had an unknown outcome.
	Doubt bool `json:"doubt,omitempty"`
	// At is when the parent read it, by its monotonic clock.
	At time.Time `json:"-"`
}
