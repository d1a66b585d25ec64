package load

import "slices"

// Mode is a way of coordinating work.
type Mode string

// The modes.
const (
	Redis    Mode = "redis"    // fencepost over one Redis
	Quorum   Mode = "quorum"   // fencepost over three
	Advisory Mode = "advisory" // fencepost over session-level advisory locks
	InTx     Mode = "in-tx"    // fencepost.AdvisoryTx
	Lock     Mode = "lock"     // a Redis lock and plain writes: no fence
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Redis, Quorum, Advisory, InTx, Lock} }

// Fenced reports whether a mode's writes carry tokens.
func (m Mode) Fenced() bool { return m != Lock }

// Servers is how many Redis servers a mode needs.
func (m Mode) Servers() int {
	switch m {
	case Redis, Lock:
		return 1
	case Quorum:
		return 3
	case Advisory, InTx:
	}
	return 0
}

// Workload is a kind of work.
type Workload string

// The workloads.
const (
	Register Workload = "register" // rows that are read, written and changed
	Counter  Workload = "counter"  // rows whose numbers are raised by one
	Set      Workload = "set"      // rows that are made and removed
	Transfer Workload = "transfer" // numbers that move between rows
	Once     Workload = "once"     // work with idempotency keys
	Batch    Workload = "batch"    // groups of rows that are written together
	Lease    Workload = "lease"    // leases alone, without any row
)

// Workloads returns all workloads.
func Workloads() []Workload {
	return []Workload{Register, Counter, Set, Transfer, Once, Batch, Lease}
}

// Makes reports whether a workload makes sense in a mode. A lease of PostgreSQL has no life of its own beside its
// store. An AdvisoryTx has one resource for each transaction, and no ledger.
func (w Workload) Makes(m Mode) bool {
	switch m {
	case InTx:
		return slices.Contains([]Workload{Register, Counter, Set, Batch}, w)
	case Advisory:
		return w != Lease
	case Redis, Quorum, Lock:
	}
	return w != Lease || m != Lock
}
