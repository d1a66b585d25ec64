package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
)

var (
	// ErrInvalid is returned, before anything is sent, for an invalid argument: a nil database, a migration that does
	// not fit, or an identifier that PostgreSQL would cut or refuse.
	ErrInvalid = errors.New("migrations: invalid argument")

	// ErrTokensRemain is returned by Down if what the next migration created is still in use. That is so while a table
	// carries fencing tokens (without them overtaken workers could write again), while the ledger knows work of the
	// last 24 hours, and while a table is protected. Down does not take that migration down.
	ErrTokensRemain = errors.New("migrations: tokens remain")

	// ErrUnknownVersion is returned by Down if the version table has a version above Options.To that is neither the
	// library's own nor among Options.Also. Down has then changed nothing.
	ErrUnknownVersion = errors.New("migrations: applied version is not known here")

	// ErrPartial is returned by Up if the version table has no record of a migration but part of what the migration
	// creates exists, for example after a restore of some tables. Up has then changed nothing. The error names what
	// exists and what is missing. Restore the schema fencepost as a whole, or drop it.
	ErrPartial = errors.New("migrations: schema fencepost is not whole")

	// ErrColumn is matched by [ColumnError].
	ErrColumn = errors.New("migrations: column does not fit")
)

// ColumnError is returned by a [TokenColumn] migration if the table already has a column of that name that cannot carry
// tokens. The migration has then changed nothing. The error matches [ErrColumn].
type ColumnError struct {
	// Table is the table that was given, with its Column filled in.
	Table Table
	// Type is the column's type as PostgreSQL prints it.
	Type string
	// Nullable reports whether the column accepts NULL. A comparison of tokens with NULL is never true.
	Nullable bool
	// Generated reports whether the database computes the column's value.
	Generated bool
}

// Error returns a text that names the column and says why it does not fit.
func (e *ColumnError) Error() string {
	is := e.Type
	if e.Nullable {
		is += ", nullable"
	}
	if e.Generated {
		is += ", generated"
	}
	return fmt.Sprintf("column %s exists and is %s: a token column is bigint, not null, not generated",
		e.Table.quotedColumn(), is)
}

// Is reports whether target is [ErrColumn].
func (e *ColumnError) Is(target error) bool { return target == ErrColumn }

// gaveUpError ends a series of attempts. A loop around the one that returned it stops as well.
type gaveUpError struct {
	attempts int
	err      error
}

func (e *gaveUpError) Error() string {
	return fmt.Sprintf("give up after %d attempts: %v", e.attempts, e.err)
}

func (e *gaveUpError) Unwrap() error { return e.err }

// The SQLSTATEs on which this package decides something.
const (
	stateDeadlock        = "40P01"
	stateLockTimeout     = "55P03"
	stateTokensRemain    = "ZF003"
	stateDoneByAnother   = "ZF100"
	stateLockTaken       = "ZF101"
	stateNoSuchStatement = "26000"
	stateStatementExists = "42P05"
	stateNoSuchFunction  = "42883"
	stateNoSuchTable     = "42P01"
	stateReadOnly        = "25006"
	stateDenied          = "42501"
	stateCacheLookup     = "XX000" // a function was dropped after the statement began
)

// sqlState returns the SQLSTATE that err carries, or "". The errors of pgx and of lib/pq both have the method.
func sqlState(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// doneByAnother reports whether err says that another migrator had already applied the migration.
func doneByAnother(err error) bool {
	return sqlState(err) == stateDoneByAnother ||
		errors.Is(err, goose.ErrAlreadyApplied) || errors.Is(err, goose.ErrNotApplied)
}

// interpretError turns an error of goose or of the driver into one of this package's errors.
func interpretError(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	switch sqlState(err) {
	case stateTokensRemain:
		err = fmt.Errorf("%w: %w", ErrTokensRemain, err)
	case stateNoSuchStatement, stateStatementExists:
		err = fmt.Errorf("prepared statements do not work here; behind a pooler in transaction mode "+
			"connect with default_query_exec_mode=exec: %w", err)
	}
	// The cause of ctx appears in the error even if the driver reports only a broken connection.
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
