package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
)

var (
	// ErrInvalid is returned before any traffic for an argument that cannot be right: a nil
	// database, a migration that does not fit, an identifier that PostgreSQL would cut or refuse.
	ErrInvalid = errors.New("migrations: invalid argument")

	// ErrTokensRemain is returned by Down where what the next migration to take down has made is in
	// use: a table still carries fencing tokens, without which overtaken workers could write again; the
	// ledger knows work of the last 24 hours; a table is still protected. That migration stays as it is.
	ErrTokensRemain = errors.New("migrations: tokens remain")

	// ErrUnknownVersion is returned by Down, which changed nothing then, where a version above
	// Options.To is applied that is neither the library's own nor among Options.Also.
	ErrUnknownVersion = errors.New("migrations: applied version is not known here")

	// ErrColumn is matched by [ColumnError].
	ErrColumn = errors.New("migrations: column does not fit")
)

// ColumnError is returned by a [TokenColumn] migration, which changed nothing, where the table has
// a column of that name already that cannot carry tokens. It matches [ErrColumn].
type ColumnError struct {
	// Table is the table given, its Column filled in.
	Table Table
	// Type is the column's type as PostgreSQL prints it.
	Type string
	// Nullable says whether the column takes NULL, under which every comparison of tokens fails.
	Nullable bool
	// Generated says whether the column's value is computed by the database.
	Generated bool
}

// Error names the column and what it is.
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

// gaveUpError ends a series of attempts. A loop around the one that made it does not go on.
type gaveUpError struct {
	attempts int
	err      error
}

func (e *gaveUpError) Error() string {
	return fmt.Sprintf("give up after %d attempts: %v", e.attempts, e.err)
}

func (e *gaveUpError) Unwrap() error { return e.err }

// The SQLSTATEs that decide something here.
const (
	stateLockTimeout     = "55P03"
	stateTokensRemain    = "ZF003"
	stateDoneByAnother   = "ZF100"
	stateNoSuchStatement = "26000"
	stateStatementExists = "42P05"
)

// sqlState returns the SQLSTATE that err carries, or "". Both pgx and lib/pq errors have the method.
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

// doneByAnother reports whether err says that the migration was already done when its turn came.
func doneByAnother(err error) bool {
	return sqlState(err) == stateDoneByAnother ||
		errors.Is(err, goose.ErrAlreadyApplied) || errors.Is(err, goose.ErrNotApplied)
}

// interpretError turns an error of goose or the driver into one of ours.
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
	// What ended the call shows in the error even where the driver reports a broken connection.
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
