package report

import (
	"time"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

// Report is everything that one run found.
type Report struct {
	// Cells are the runs with a fault, and without one, in the order of the tables.
	Cells []Cell `json:"cells"`
	// LeftOut are the cells that make no sense, each with the reason.
	LeftOut []LeftOut `json:"left_out"`
	// Modes are what each mode costs while nothing goes wrong.
	Modes []ModeFigures `json:"modes"`
	// Figures set one rate against another.
	Figures []Figure `json:"figures"`
	// Versions are of fencepost, go, postgres, redis, os and cpu, by these names.
	Versions map[string]string `json:"versions"`
	Settings Settings          `json:"settings"`
	// Error says what ended the run early. It is empty if the run is complete.
	Error string `json:"error,omitempty"`
}

// Cell is one mode under one fault, with one workload. The fault struck: one that missed ends the run with an error.
type Cell struct {
	Mode     string `json:"mode"`
	Workload string `json:"workload"`
	Fault    string `json:"fault"`
	// Keyed is true where each operation carried an idempotency key.
	Keyed bool `json:"keyed"`
	// Operations are the distinct things that users wanted done, however often each was tried.
	Operations int64 `json:"operations"`
	// Accepted are the operations whose worker was told in the end that they are done.
	Accepted int64 `json:"accepted"`
	// Refused are the attempts that a fence, a lease or a version turned away.
	Refused int64 `json:"refused"`
	// RefusedByPostgres are those of Refused that PostgreSQL turned away; of the others the client noticed by itself
	// that it must not write.
	RefusedByPostgres int64 `json:"refused_by_postgres"`
	// LostUpdates counts effects that were committed, or acknowledged, and are missing. It counts changes of rows: a
	// transfer makes two, and a batch many.
	LostUpdates int64 `json:"lost_updates"`
	// Duplicates are the operations that took effect more than once. Of invoices, whose number may be there once, they
	// are the damage.
	Duplicates int64 `json:"duplicates"`
	// Unbalanced is how far the sum of all accounts is from what it was, where only transfers change it.
	Unbalanced int64 `json:"unbalanced"`
	// Unknown are the operations whose outcome no worker ever learnt.
	Unknown int64 `json:"unknown"`
	// UnavailableS is the longest time in which no operation of any worker was accepted, in seconds.
	UnavailableS float64 `json:"unavailable_s"`
}

// Damage counts what must not happen behind a guard: lost row changes, and invoices that exist twice. A lost reply to
// COMMIT excuses a duplicate invoice without an idempotency key: no guard could have told the second attempt from a new
// operation.
func (c *Cell) Damage() int64 {
	if c.Workload == WorkloadInvoice && (c.Fault != FaultCommitReplyLost || c.Keyed) {
		return c.LostUpdates + c.Duplicates
	}
	return c.LostUpdates
}

// LeftOut is a cell that was not run.
type LeftOut struct {
	Mode     string `json:"mode"`
	Workload string `json:"workload"`
	Fault    string `json:"fault"`
	Keyed    bool   `json:"keyed"`
	// Reason is a clause for people, without a full stop.
	Reason string `json:"reason"`
}

// ModeFigures are what a mode costs, measured without a fault.
type ModeFigures struct {
	Mode    string  `json:"mode"`
	OpsPerS float64 `json:"ops_per_s"`
	// P50MS and P99MS are how long an operation takes, in milliseconds.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	// ConnectionsHeld is how many connections to PostgreSQL a worker holds while it waits for its turn.
	ConnectionsHeld float64 `json:"connections_held"`
	// RoundTripsRedis and RoundTripsPostgres are counted per operation.
	RoundTripsRedis    float64 `json:"round_trips_redis"`
	RoundTripsPostgres float64 `json:"round_trips_postgres"`
}

// Figure is one value beside another, as `make bench` prints them.
type Figure struct{ figure.Figure }

// Settings say how the run was made.
type Settings struct {
	// Seed is a string in JSON, where large numbers lose digits.
	Seed uint64 `json:"seed,string"`
	// DurationS is how long a cell runs undisturbed, and TTLS how long a lease lasts, in seconds.
	DurationS float64 `json:"duration_s"`
	TTLS      float64 `json:"ttl_s"`
	Workers   int     `json:"workers"`
	Quick     bool    `json:"quick"`
	// Command is what made the report, and Date when.
	Command string    `json:"command"`
	Date    time.Time `json:"date"`
	// Fsync and SynchronousCommit are PostgreSQL's settings, such as "on".
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
}
