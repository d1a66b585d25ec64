package demo

import (
	"time"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// What the plays are about.
const (
	resource  = "invoice:2026-11"
	invoiceID = "2026-11"
	openValue = "open"

	nameA = "A"
	nameB = "B"
)

func paidBy(name string) string { return "paid by " + name }

func invoices() fence.Table {
	return fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}}
}

// workerEnv marks a process as a worker.
const workerEnv = "FENCEPOST_DEMO_WORKER"

// writer is how a worker writes.
type writer string

const (
	plain   writer = "plain"   // UPDATE: it records its token and compares nothing
	guarded writer = "guarded" // UPDATE behind fence.Enter, in one transaction
)

// script is the first line that a worker reads: what it has to do. It is not passed as arguments, because addresses may
// contain passwords. The second line is the cue.
type script struct {
	Name        string
	PostgresURL string
	Database    string // in place of the one that PostgresURL names
	RedisURL    string
	Namespace   string
	TTL         time.Duration
	Writer      writer
	AwaitCue    bool // between reading and writing: the worker's long computation
}

// what is the subject of a report.
type what string

const (
	isHeld     what = "held"     // another worker has the lease; this one waits
	isGranted  what = "granted"  // the worker has the lease and has claimed Token
	isRead     what = "read"     // the worker has read Value
	isAccepted what = "accepted" // the worker's write was committed
	isRefused  what = "refused"  // ... was refused as stale: Token by Current
	isOver     what = "over"     // the worker has released its lease, or found it Lost
	isFailed   what = "failed"   // the worker gives up, with Error
)

// report is a line that a worker writes.
type report struct {
	What    what
	Holder  string      `json:",omitempty"`
	Token   token.Token `json:",omitzero"`
	Current token.Token `json:",omitzero"`
	Value   string      `json:",omitempty"`
	Lost    string      `json:",omitempty"` // why the lease was over when it was looked at, after the write
	Error   string      `json:",omitempty"`
}
