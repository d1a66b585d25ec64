package history

import "time"

// Kind is what an operation does.
type Kind string

// The kinds. Those that read and then write a row record what they read.
const (
	Get      Kind = "get"      // reads a row
	Put      Kind = "put"      // writes a row whatever it contains
	Change   Kind = "change"   // reads a row, computes, and writes it
	Modify   Kind = "modify"   // the same in one call of the library
	Insert   Kind = "insert"   // makes a row
	Upsert   Kind = "upsert"   // writes a row, or makes it
	Delete   Kind = "delete"   // removes a row
	Transfer Kind = "transfer" // moves one from a row to another
	Sum      Kind = "sum"      // adds up all rows
	Batch    Kind = "batch"    // writes all rows of a group in one call
	Once     Kind = "once"     // does work that has an idempotency key
	Grant    Kind = "grant"    // acquires a lease, and nothing else
	Belief   Kind = "belief"   // asks a lease whether it is still held
	Release  Kind = "release"  // releases a lease
)

// Outcome is what is known of an operation.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"      // committed, or answered
	Refused Outcome = "refused" // nothing was written: Error says why
	Unknown Outcome = "unknown" // it may have been written
)

// Op is one operation of one worker. Fields that do not apply are zero.
type Op struct {
	ID       string        `json:"id"`      // unique in the run
	Process  string        `json:"process"` // the worker's number and its life: "3.1"
	Kind     Kind          `json:"kind"`
	Rows     []string      `json:"rows,omitempty"`     // the rows it reads or writes, "group/id"
	Invoked  time.Duration `json:"invoked"`            // before the first request was sent
	Returned time.Duration `json:"returned,omitempty"` // 0 as long as the operation has not returned
	Outcome  Outcome       `json:"outcome,omitempty"`  // "" as long as it has not returned
	Error    string        `json:"error,omitempty"`    // the outcome's name in the library, or a text
	// Mark is what a write leaves in the row: the operation's ID, or its idempotency key.
	Mark string `json:"mark,omitempty"`
	// Resource is the lease's. Lease names the grant, and Token is its fencing token; 0 without a fence.
	Resource string `json:"resource,omitempty"`
	Lease    string `json:"lease,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	// Found reports whether there was a row; of a Belief, whether the lease was held. Read is the row's mark and ReadN
	// its number, WroteN the number written; of a Sum, ReadN is the sum.
	Found  bool   `json:"found,omitempty"`
	Read   string `json:"read,omitempty"`
	ReadN  int64  `json:"read_n,omitempty"`
	WroteN int64  `json:"wrote_n,omitempty"`
}

// Writes reports whether an operation changes rows when it succeeds.
func (o *Op) Writes() bool {
	switch o.Kind {
	case Put, Change, Modify, Insert, Upsert, Delete, Transfer, Batch, Once:
		return true
	case Get, Sum, Grant, Belief, Release:
	}
	return false
}

// Uncertain reports whether an operation may have taken effect without its worker's knowledge.
func (o *Op) Uncertain() bool { return o.Outcome == "" || o.Outcome == Unknown }

// Entry is one line of the database's journal.
type Entry struct {
	Seq    int64  `json:"seq"` // for each row, they are in the order of the changes
	Row    string `json:"row"`
	Action string `json:"action"` // INSERT, UPDATE or DELETE
	Mark   string `json:"mark"`
	N      int64  `json:"n"`
	Before string `json:"before,omitempty"` // the mark that the change replaced
	Token  uint64 `json:"token,omitempty"`  // what stands in last_fencing_token
}

// Fault is one thing that the nemesis did.
type Fault struct {
	Name   string        `json:"name"`
	Target string        `json:"target,omitempty"`
	Began  time.Duration `json:"began"`
	Healed time.Duration `json:"healed"`
	Error  string        `json:"error,omitempty"` // why it could not be done
}

// Ending is what is left of a run when its workers have been told to end.
type Ending struct {
	Stopped  time.Duration    `json:"stopped"`            // when the workers were told
	Left     []string         `json:"left,omitempty"`     // goroutines, connections, locks and keys that should be gone
	Numbers  map[string]int64 `json:"numbers,omitempty"`  // the rows at the end
	Expected int64            `json:"expected,omitempty"` // what the rows of the transfers add up to
	// Within is the time in which work must go on after the last fault.
	Within time.Duration `json:"within,omitempty"`
}

// History is everything that is known of a run.
type History struct {
	Ops     []Op    `json:"ops"`
	Journal []Entry `json:"journal"`
	Faults  []Fault `json:"faults"`
	Ending  Ending  `json:"ending"`
	// Fenced: the writes carried tokens. Kept: no fault made Redis forget a lease, so leases exclude each other.
	Fenced bool `json:"fenced"`
	Kept   bool `json:"kept"`
}
