package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

// DefaultNamespace is the namespace of a store whose Options.Namespace is empty. A [Protection] for such a store must
// name it.
const DefaultNamespace = "default"

// Mode is what a protected table does with a write that has no claim.
type Mode string

// The modes of a protected table.
const (
	// Enforce refuses the write.
	Enforce Mode = "enforce"
	// Observe lets the write pass, and logs on the server what Enforce would have refused.
	Observe Mode = "observe"
	// Unprotected is no protection at all. It is a mode to go back to.
	Unprotected Mode = ""
)

// Protection says how a table is protected: which resource each of its rows belongs to, and what happens to a write
// without a claim of that resource.
//
// # Prefix and Columns
//
// A program that uses fencepost.Table has stated which resource a row belongs to, as a rule in TableSpec.Resource. The
// protection must state the same, or NewTable refuses the table:
//
//	rule in the program                    Prefix           Columns
//	PerRow("invoice:")                     "invoice:"       all columns of TableSpec.Key, in the order of Key
//	PerGroup("tenant:", "tenant_id")       "tenant:"        "tenant_id"
//	Constant("importer")                   "importer"       none
//
// ResourceRule.Prefix returns the prefix of a rule. TableSpec.TokenColumn corresponds to Table.Column here.
type Protection struct {
	// Table names the table and its token column, which must exist already: see [TokenColumn].
	Table Table
	// Namespace is the Options.Namespace of the stores that write the table, or DefaultNamespace if they leave it
	// empty. It has no default, because under a wrong namespace all of their writes are refused.
	Namespace string
	// Prefix begins the name of every resource of the table. If Columns is empty, Prefix is the whole name, for all
	// rows. See "Prefix and Columns" above.
	Prefix string
	// Columns are the columns whose values follow the prefix, in this order. They are NOT NULL. Default: none.
	Columns []string
	// Mode is Enforce or Observe. Default: Enforce.
	Mode Mode
	// Replicated makes the protection also apply to logical replication, and under session_replication_role = replica.
	// Replicated writes carry no claim, so Enforce refuses them. Default false.
	Replicated bool
	// Before is the mode to which Down goes back: the mode of an earlier migration with the same rule. Default:
	// Unprotected.
	Before Mode
}

// Protect returns a goose migration that protects a table, by calling fencepost.protect. From then on PostgreSQL
// refuses every write, from any program, whose transaction has not entered the row's resource under a valid claim. For
// a table that old programs still write, use one migration with Observe and a later one with Enforce.
//
// The migration fits Options.Also, if the role that migrates owns both the schema fencepost and the table. It also fits
// a goose provider of the caller's that runs after the library's own migrations. That is the way for a table with
// another owner, as [Options] explains: there the role owns the table and has been granted what fencepost.grant_owner
// grants. If the role lacks one of these rights, the error (SQLSTATE 42501) says which right, and which role has to
// act.
//
// The migration waits for running writers. If a table lock is not granted within three seconds, it tries again under a
// savepoint, with a pause in between. After five attempts it returns the error (SQLSTATE 55P03). It refuses a table
// that does not fit with SQLSTATE ZF002, and changes nothing.
//
// In Options.Also its version is FirstAlso or above.
//
// Protect returns ErrInvalid for a version below 1, for a name that is empty, is longer than 63 bytes, is not UTF-8 or
// has a zero byte, for an empty Namespace, for an unknown mode, and if both Prefix and Columns are empty.
func Protect(version int64, p Protection) (*goose.Migration, error) {
	if version < 1 {
		return nil, fmt.Errorf("%w: version %d is below 1", ErrInvalid, version)
	}
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	return named(version, goose.GoFunc{RunTx: p.up}, goose.GoFunc{RunTx: p.down},
		"protect", p.Table.Schema, p.Table.Name, string(p.Mode)), nil
}

func (p Protection) withDefaults() Protection {
	if p.Table.Column == "" {
		p.Table.Column = DefaultColumn
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
	case p.Namespace == "":
		return fmt.Errorf("%w: the protection of %s needs the namespace of the stores that write the table",
			ErrInvalid, p.Table.quoted())
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
		if err := lockProtection(ctx, tx, p.Table.quoted()); err != nil {
			return err
		}
		// A table that does not exist has no protection.
		const unprotect = `SELECT fencepost.unprotect(c.oid) FROM pg_catalog.pg_class AS c
			WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)`
		_, err := tx.ExecContext(ctx, unprotect, p.Table.quoted())
		return err
	})
}

func (p Protection) change(ctx context.Context, tx *sql.Tx, fn func() error) error {
	err := underLock(ctx, tx, func() error { return p.Table.asOwner(ctx, tx, fn) })
	switch sqlState(err) {
	case "42P01", "42883", "42704": // a table, function or type does not exist
		err = fmt.Errorf("if an event trigger of this database names something without its schema, give its function a "+
			"SET search_path: a protection is made under the search_path pg_catalog, pg_temp: %w", err)
	}
	if err != nil {
		return fmt.Errorf("protection of %s: %w", p.Table.quoted(), err)
	}
	return nil
}

// protect passes the columns one by one, because drivers do not agree on how to pass an array.
func (p Protection) protect(ctx context.Context, tx *sql.Tx, mode Mode) error {
	if err := lockProtection(ctx, tx, p.Table.quoted()); err != nil {
		return err
	}
	args := []any{p.Table.quoted(), p.Namespace, p.Prefix, p.Table.Column, string(mode), p.Replicated}
	columns := make([]string, len(p.Columns))
	for i, column := range p.Columns {
		args = append(args, column)
		columns[i] = fmt.Sprintf("$%d::pg_catalog.text", len(args))
	}
	_, err := tx.ExecContext(ctx, `SELECT fencepost.protect(target => $1::pg_catalog.text::pg_catalog.regclass,
		namespace => $2::pg_catalog.text, prefix => $3::pg_catalog.text,
		token_column => $4::pg_catalog.text::pg_catalog.name,
		mode => $5::pg_catalog.text, replicated => $6::pg_catalog.bool,
		columns => ARRAY[`+strings.Join(columns, ", ")+`]::pg_catalog.name[])`, args...)
	return err
}
