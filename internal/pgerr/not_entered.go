package pgerr

import (
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// NotEnteredError is the refusal of a protected table (fencepost.protect) of a write whose transaction has not entered
// the row's resource. PostgreSQL has aborted that transaction. It matches [ErrStale], because PostgreSQL cannot know
// whether the writer was overtaken. Inside a transaction that entered a claim it is almost always a programming error:
// the claim is that of another resource.
type NotEnteredError struct {
	// Resource is the row's resource. It is empty for a TRUNCATE, and for a row without a resource because a column of
	// the rule is NULL.
	Resource string
	// Table is the table or the partition, quoted if necessary.
	Table string
	// Operation is INSERT, UPDATE, DELETE or TRUNCATE.
	Operation string

	server *pgconn.PgError
}

func (e *NotEnteredError) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("%v: %s", ErrStale, e.server.Message)
	}
	return fmt.Sprintf("%v: %s on %s without a claim: the transaction has not entered %q",
		ErrStale, e.Operation, e.Table, e.Resource)
}

// Is reports whether target is [ErrStale].
func (e *NotEnteredError) Is(target error) bool { return target == ErrStale }

// Unwrap returns the server's error.
func (e *NotEnteredError) Unwrap() error { return e.server }

// notEnteredFrom reads the DETAIL that the trigger gives with its SQLSTATE.
func notEnteredFrom(server *pgconn.PgError) error {
	e := &NotEnteredError{server: server}
	if err := json.Unmarshal([]byte(server.Detail), e); err != nil {
		return fmt.Errorf("%w: %w", ErrStale, server)
	}
	return e
}
