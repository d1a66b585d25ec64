package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

// DefaultNamespace is the namespace of [Protect] where Protection.Namespace is empty, as it is a
// store's own default.
const DefaultNamespace = "default"

// Mode says what a protected table does about a write without a claim.
type Mode string

// The modes of a protected table.
const (
	// Enforce refuses the write.
	Enforce Mode = "enforce"
	// Observe lets it pass, and tells the server's log what Enforce would have refused.
	Observe Mode = "observe"
	// Unprotected is no door at all, as a state to go back to.
	Unprotected Mode = ""
)

// Protection says how a table is protected: which resource each of its rows belongs to, and what is
// done about a write without a claim of that.
type Protection struct {
	// Table names the table and its token column, which must be there already: see [TokenColumn].
	Table Table
	// Namespace is that of the stores which write the table. Default: DefaultNamespace.
	Namespace string
	// Prefix begins every resource of the table. Where there are no Columns it is the whole of it, for
	// all rows.
	Prefix string
	// Columns are those whose values follow the prefix, in this order: all key columns for a resource per
	// row, some of them for one per group. They are NOT NULL. Default: none.
	Columns []string
	// Mode is Enforce or Observe. Default: Enforce.
	Mode Mode
	// Replicated makes the door stand for logical replication, and for session_replication_role =
	// replica, too. What replication applies carries no claim, so in mode Enforce it is refused. Default false.
	Replicated bool
	// Before is what Down goes back to: the mode of an earlier migration, with the same rule.
	// Default: Unprotected.
	Before Mode
}

// Protect makes a goose migration that gives a table its door, by calling fencepost.protect: from then
// on PostgreSQL refuses every write, whoever sends it, whose transaction has not entered the row's
// resource under a claim that holds. One migration with Observe and a later one with Enforce are the way
// in for a table that old programs still write.
//
// It fits Options.Also, and a goose provider of the caller's that runs after the library's own
// migrations. The role must own the table and have been granted what fencepost.grant_owner grants. It
// waits for writers in flight; a table lock that is not granted within three seconds is tried for five
// times with pauses between, under a savepoint, then the error (SQLSTATE 55P03) is returned. A table that
// does not fit is refused with SQLSTATE ZF002, and nothing is changed.
//
// In Options.Also a version is FirstAlso or above.
//
// It returns ErrInvalid for one below 1, for a name that is empty, longer than 63 bytes, not UTF-8
// or has a zero byte, for an unknown mode, and for no Prefix without Columns.
func Protect(version int64, p Protection) (*goose.Migration, error) {
	if version < 1 {
		return nil, fmt.Errorf("%w: version %d is below 1", ErrInvalid, version)
	}
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	return goose.NewGoMigration(version, &goose.GoFunc{RunTx: p.up}, &goose.GoFunc{RunTx: p.down}), nil
}

func (p Protection) withDefaults() Protection {
	if p.Table.Column == "" {
		p.Table.Column = DefaultColumn
	}
	if p.Namespace == "" {
		p.Namespace = DefaultNamespace
	}
	if p.Mode == Unprotected {
		p.Mode = Enforce
	}
	return p
}

func (p Protection) validate() error {
	if err := p.Table.validate(); err != nil {
		return err
	}
	for _, column := range p.Columns {
		if err := checkName("column", column); err != nil {
			return err
		}
	}
	switch {
	case p.Mode != Enforce && p.Mode != Observe:
		return fmt.Errorf("%w: unknown mode %q", ErrInvalid, p.Mode)
	case p.Before != Unprotected && p.Before != Enforce && p.Before != Observe:
		return fmt.Errorf("%w: unknown mode %q to go back to", ErrInvalid, p.Before)
	case p.Prefix == "" && len(p.Columns) == 0:
		return fmt.Errorf("%w: one resource for all rows of %s needs a name", ErrInvalid, p.Table.quoted())
	}
	return nil
}

func (p Protection) up(ctx context.Context, tx *sql.Tx) error {
	return p.change(ctx, tx, func() error { return p.protect(ctx, tx, p.Mode) })
}

func (p Protection) down(ctx context.Context, tx *sql.Tx) error {
	return p.change(ctx, tx, func() error {
		if p.Before != Unprotected {
			return p.protect(ctx, tx, p.Before)
		}
		// A table that is gone has no door.
		const unprotect = `SELECT fencepost.unprotect(c.oid) FROM pg_catalog.pg_class AS c
			WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)`
		_, err := tx.ExecContext(ctx, unprotect, p.Table.quoted())
		return err
	})
}

func (p Protection) change(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := underLock(ctx, tx, fn); err != nil {
		return fmt.Errorf("protection of %s: %w", p.Table.quoted(), err)
	}
	return nil
}

// protect spells the columns out one by one: drivers do not agree on how an array is passed.
func (p Protection) protect(ctx context.Context, tx *sql.Tx, mode Mode) error {
	args := []any{p.Table.quoted(), p.Namespace, p.Prefix, p.Table.Column, string(mode), p.Replicated}
	columns := make([]string, len(p.Columns))
	for i, column := range p.Columns {
		args = append(args, column)
		columns[i] = fmt.Sprintf("$%d::pg_catalog.text", len(args))
	}
	_, err := tx.ExecContext(ctx, `SELECT fencepost.protect(target => $1::pg_catalog.text::pg_catalog.regclass,
		namespace => $2::pg_catalog.text, prefix => $3::pg_catalog.text, token_column => $4::pg_catalog.text::pg_catalog.name,
		mode => $5::pg_catalog.text, replicated => $6::pg_catalog.bool,
		columns => ARRAY[`+strings.Join(columns, ", ")+`]::pg_catalog.name[])`, args...)
	return err
}
