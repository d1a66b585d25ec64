package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pressly/goose/v3"
)

// DefaultColumn is the column of [TokenColumn] where Table.Column is empty.
const DefaultColumn = "last_fencing_token"

// maxIdentifier is what PostgreSQL keeps of a name, in bytes; it would cut a longer one silently.
const maxIdentifier = 63

// Table names a table and its token column, in parts, each as the catalog spells it: nothing is
// folded to lower case, and a dot belongs to the name it stands in.
type Table struct {
	// Schema is the table's schema. There is no default: search_path must not decide.
	Schema string
	// Name is the table's name without its schema.
	Name string
	// Column is the token column's name. Default: DefaultColumn.
	Column string
}

// TokenColumn makes a goose migration that gives a table its token column: bigint NOT NULL DEFAULT
// 0, and a CHECK that keeps it from falling below zero. The table is neither rewritten nor scanned:
// the CHECK is NOT VALID, which holds for every row all the same, since each begins with 0.
//
// It fits Options.Also, and a goose provider of the caller's (where that provider must see to it
// that a version is recorded once). It runs in goose's transaction, under the migration lock of
// this package. A table lock that is not granted within three seconds is tried for five times with
// pauses between, under a savepoint, then the error (SQLSTATE 55P03) is returned.
//
// Up leaves a column alone that is already there and fits, and returns *ColumnError for one that
// does not. Down drops the column. It returns ErrTokensRemain while a row carries a token, unless
// forced: by Options.Force, or, under another provider, by the setting fencepost.force_down = 'on'
// in the session or transaction. Down keeps all others from the table while it looks for tokens.
//
// In Options.Also a version is FirstAlso or above.
//
// It returns ErrInvalid for one below 1 and for a name that is empty, longer than 63 bytes,
// not UTF-8, or has a zero byte.
func TokenColumn(version int64, table Table) (*goose.Migration, error) {
	if version < 1 {
		return nil, fmt.Errorf("%w: version %d is below 1", ErrInvalid, version)
	}
	if table.Column == "" {
		table.Column = DefaultColumn
	}
	if err := table.validate(); err != nil {
		return nil, err
	}
	return goose.NewGoMigration(version,
		&goose.GoFunc{RunTx: table.up}, &goose.GoFunc{RunTx: table.down}), nil
}

func (t Table) validate() error {
	parts := []struct{ what, name string }{
		{"schema", t.Schema}, {"table", t.Name}, {"column", t.Column},
	}
	for _, p := range parts {
		if err := checkName(p.what, p.name); err != nil {
			return err
		}
	}
	return nil
}

func checkName(what, name string) error {
	var wrong string
	switch {
	case name == "":
		wrong = "is empty"
	case len(name) > maxIdentifier:
		wrong = fmt.Sprintf("is longer than %d bytes", maxIdentifier)
	case strings.ContainsRune(name, 0):
		wrong = "has a zero byte"
	case !utf8.ValidString(name):
		wrong = "is not UTF-8"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s name %q %s", ErrInvalid, what, name, wrong)
}

func (t Table) quoted() string { return quote(t.Schema) + "." + quote(t.Name) }

func (t Table) quotedColumn() string { return t.quoted() + "." + quote(t.Column) }

func quote(identifier string) string {
	return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"`
}

func (t Table) up(ctx context.Context, tx *sql.Tx) error {
	return t.change(ctx, tx, func() error {
		exists, err := t.checkColumn(ctx, tx)
		if err != nil || exists {
			return err
		}
		// One statement, and a constant default: PostgreSQL writes to the catalog alone.
		return execAll(ctx, tx, fmt.Sprintf(`ALTER TABLE %[1]s ADD COLUMN %[2]s bigint NOT NULL DEFAULT 0, `+
			`ADD CHECK (%[2]s OPERATOR(pg_catalog.>=) 0) NOT VALID`, t.quoted(), quote(t.Column)))
	})
}

func (t Table) down(ctx context.Context, tx *sql.Tx) error {
	return t.change(ctx, tx, func() error {
		if exists, err := t.exists(ctx, tx); err != nil || !exists {
			return err
		}
		// The whole of it at once, not a weaker lock first: raising that would deadlock with a
		// transaction that has read the table and goes on to write it. No row may hide from us.
		if err := execAll(ctx, tx,
			`SELECT pg_catalog.set_config('row_security', 'off', true)`,
			`LOCK TABLE `+t.quoted()+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := t.refuseTokens(ctx, tx); err != nil {
			return err
		}
		return execAll(ctx, tx, `ALTER TABLE `+t.quoted()+` DROP COLUMN `+quote(t.Column))
	})
}

func (t Table) change(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := underLock(ctx, tx, fn); err != nil {
		return fmt.Errorf("token column %s: %w", t.quotedColumn(), err)
	}
	return nil
}

// columnQuery asks the catalog what the column is. It has no row where column or table is missing.
const columnQuery = `
SELECT pg_catalog.format_type(a.atttypid, a.atttypmod),
       a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.int8'::pg_catalog.regtype,
       NOT a.attnotnull,
       a.attgenerated OPERATOR(pg_catalog.<>) '' OR a.attidentity OPERATOR(pg_catalog.<>) ''
  FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)
   AND a.attname OPERATOR(pg_catalog.=) $2 AND NOT a.attisdropped`

// checkColumn reports whether the column is there, and an error if it is and does not fit.
func (t Table) checkColumn(ctx context.Context, tx *sql.Tx) (bool, error) {
	found := ColumnError{Table: t}
	var bigint bool
	err := tx.QueryRowContext(ctx, columnQuery, t.quoted(), t.Column).
		Scan(&found.Type, &bigint, &found.Nullable, &found.Generated)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the column: %w", err)
	}
	if !bigint || found.Nullable || found.Generated {
		return true, &found
	}
	return true, nil
}

// exists reports whether the column is there, fitting or not.
func (t Table) exists(ctx context.Context, tx *sql.Tx) (bool, error) {
	exists, err := t.checkColumn(ctx, tx)
	if errors.Is(err, ErrColumn) {
		err = nil
	}
	return exists, err
}

// refuseTokens returns ErrTokensRemain if a row carries a token, unless forced.
func (t Table) refuseTokens(ctx context.Context, tx *sql.Tx) error {
	const isForced = `SELECT coalesce(pg_catalog.current_setting('` + forceSetting + `', true), '')`
	var forced string
	if err := tx.QueryRowContext(ctx, isForced).Scan(&forced); err != nil {
		return fmt.Errorf("look for %s: %w", forceSetting, err)
	}
	if forced == "on" {
		return nil
	}
	var remain bool
	err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM %s WHERE %s OPERATOR(pg_catalog.>) 0)`,
		t.quoted(), quote(t.Column))).Scan(&remain)
	if err != nil {
		return fmt.Errorf("look for tokens: %w", err)
	}
	if remain {
		return fmt.Errorf("%w: dropping the column would let overtaken workers write again; "+
			"force it, only where no worker is left, with Options.Force or %s = 'on'",
			ErrTokensRemain, forceSetting)
	}
	return nil
}
