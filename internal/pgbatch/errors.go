package pgbatch

import (
	"fmt"
	"strings"

	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// BatchError says which rows of a batch or a load were not written, and why. errors.Is and errors.As see the outcome of
// every row that it lists: a batch with a stale row and a missing one matches ErrStale and ErrNotFound.
type BatchError struct {
	// Table is schema and name, quoted.
	Table string
	// Rows is how many rows were given.
	Rows int
	// Written is how many rows were written: 0, unless the call was allowed to write a part.
	Written int
	// Stale, Missing and Refused count the rows that were not written, by reason.
	Stale, Missing, Refused int
	// Failures lists these rows, in the order given for a batch and in key order for a load. A batch lists all
	// of them, a load the first MaxListed.
	Failures []RowError
}

// RowError says why one row was not written.
type RowError struct {
	// Index is the row's place in the batch; -1 in a load.
	Index int
	Key   pgtable.Key
	// Err is a *StaleError with the row's token, or matches ErrNotFound or ErrRefused.
	// In an error that is no *BatchError it is PostgreSQL's own, of a value or a constraint.
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %v: %v", e.Key, e.Err) }

// Unwrap returns Err.
func (e *RowError) Unwrap() error { return e.Err }

// Failed is how many rows were not written for a reason of their own.
func (e *BatchError) Failed() int { return e.Stale + e.Missing + e.Refused }

func (e *BatchError) Error() string {
	const shown = 3
	var text strings.Builder
	fmt.Fprintf(&text, "fencepost: %s: %d of %d rows cannot be written (%d stale, %d missing, %d refused), %d were:",
		e.Table, e.Failed(), e.Rows, e.Stale, e.Missing, e.Refused, e.Written)
	for i := range min(shown, len(e.Failures)) {
		fmt.Fprintf(&text, " %v;", &e.Failures[i])
	}
	if e.Failed() > shown {
		text.WriteString(" …")
	}
	return strings.TrimSuffix(text.String(), ";")
}

// Unwrap returns the rows' errors.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i := range e.Failures {
		errs[i] = &e.Failures[i]
	}
	return errs
}

func (e *BatchError) add(row RowError, verdict verdict) {
	switch verdict {
	case stale:
		e.Stale++
	case missing:
		e.Missing++
	default:
		e.Refused++
	}
	e.Failures = append(e.Failures, row)
}
