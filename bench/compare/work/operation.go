package work

import (
	"context"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// Workload is a kind of operation.
type Workload string

// The workloads.
const (
	Counter  Workload = report.WorkloadCounter  // read a row, add one, write it
	Transfer Workload = report.WorkloadTransfer // one row gives to another: the sum must hold
	Invoice  Workload = report.WorkloadInvoice  // insert what is not there yet
	Batch    Workload = report.WorkloadBatch    // many rows at once
	HandOff  Workload = report.WorkloadHandOff  // a counter that everybody wants at the same time
)

// Workloads returns all workloads, in the order of reports.
func Workloads() []Workload { return []Workload{Counter, Transfer, Invoice, Batch, HandOff} }

// Operation is one thing that a user wants done, once.
type Operation struct {
	// ID is a uuid, the same in every attempt.
	ID string
	// Workload says what is done.
	Workload Workload
	// Keyed tells that ID serves as an idempotency key as well.
	Keyed bool
	// Resource is what is coordinated.
	Resource string
	// Rows are ids of compare.item, in ascending order; of an invoice, its number alone.
	Rows []int64
	// Deltas is what the value of each row rises by; of an invoice, 1.
	Deltas []int64
	// Between is called after reading and before writing. nil: nothing is.
	Between func(context.Context) error
}

// Pause calls Between.
func (o *Operation) Pause(ctx context.Context) error {
	if o.Between == nil {
		return nil
	}
	return o.Between(ctx)
}
