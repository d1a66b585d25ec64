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

// DefaultColumn is the token column of [TokenColumn] if Table.Column is empty.
const DefaultColumn = "last_fencing_token"

// maxIdentifier is how many bytes of a name PostgreSQL keeps. It would cut a longer name silently.
const maxIdentifier = 63

// Table names a table and its token column, in parts. Each part is spelled as in the catalog: nothing is folded to
// lower case, and a dot is part of the name that contains it.
type Table struct {
	// Schema is the table's schema. It has no default, because search_path must not decide.
	Schema string
	// Name is the table's name without its schema.
	Name string
	// Column is the token column's name. Default: DefaultColumn.
	Column string
}

// TokenColumn returns a goose migration that adds a token column to a table: bigint NOT NULL DEFAULT 0, and a CHECK
// that the value is not negative. PostgreSQL neither rewrites nor scans the table: the CHECK is NOT VALID. It holds for
// every row all the same, because each row begins with 0.
//
// The migration fits Options.Also, if the role that migrates owns both the schema fencepost and the table. It also fits
// a goose provider of the caller's, if that provider makes sure that a version is recorded only once. That is the way
// for a table with another owner, as [Options] explains. The migration runs in goose's transaction, under the migration
// lock of this package. If the role does not own the table, it returns an error (SQLSTATE 42501) that names the owner.
// If a table lock is not granted within three seconds, it tries again under a savepoint, with a pause in between. After
// five attempts it returns the error (SQLSTATE 55P03).
//
// Up leaves an existing column alone if it fits, and returns *ColumnError if it does not. Down drops the column. It
// returns ErrTokensRemain while a row carries a token, unless forced: by Options.Force, or, under another provider, by
// the setting fencepost.force_down = 'on' in the session or transaction. Down blocks all other access to the table
// while it looks for tokens.
//
// In Options.Also the version is FirstAlso or above.
//
// TokenColumn returns ErrInvalid for a version below 1 and for a name that is empty, is longer than 63 bytes, is not
// UTF-8 or has a zero byte.
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
	return named(version, goose.GoFunc{RunTx: table.up}, goose.GoFunc{RunTx: table.down},
		"token_column", table.Schema, table.Name), nil
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

// literal returns a text as a SQL literal, for a statement that a person copies.
func literal(text string) string {
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}

func (t Table) up(ctx context.Context, tx *sql.Tx) error {
	return t.change(ctx, tx, func() error {
		exists, err := t.checkColumn(ctx, tx)
		if err != nil || exists {
			return err
		}
		if err := lockTable(ctx, tx, t.quoted(), accessExclusive); err != nil {
			return err
		}
		// One statement and a constant default, so that PostgreSQL changes only the catalog.
		return execAll(ctx, tx, fmt.Sprintf(`ALTER TABLE %[1]s ADD COLUMN %[2]s bigint NOT NULL DEFAULT 0, `+
			`ADD CHECK (%[2]s OPERATOR(pg_catalog.>=) 0) NOT VALID`, t.quoted(), quote(t.Column)))
	})
}

func (t Table) down(ctx context.Context, tx *sql.Tx) error {
	return t.change(ctx, tx, func() error {
		if exists, err := t.exists(ctx, tx); err != nil || !exists {
			return err
		}
		// This takes the strongest lock at once. Raising a weaker lock later would deadlock with a transaction that has
		// read the table and then writes it. No row may be hidden from this look.
		if err := execAll(ctx, tx, `SELECT pg_catalog.set_config('row_security', 'off', true)`); err != nil {
			return err
		}
		if err := lockTable(ctx, tx, t.quoted(), accessExclusive); err != nil {
			return err
		}
		if err := t.refuseTokens(ctx, tx); err != nil {
			return err
		}
		return execAll(ctx, tx, `ALTER TABLE `+t.quoted()+` DROP COLUMN `+quote(t.Column))
	})
}

func (t Table) change(ctx context.Context, tx *sql.Tx, fn func() error) error {
	err := underLock(ctx, tx, func() error { return t.asOwner(ctx, tx, fn) })
	if err != nil {
		return fmt.Errorf("token column %s: %w", t.quotedColumn(), err)
	}
	return nil
}

// columnQuery asks the catalog for the column. It returns no row if the column or the table does not exist.
const columnQuery = `
SELECT pg_catalog.format_type(a.atttypid, a.atttypmod),
       a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.int8'::pg_catalog.regtype,
       NOT a.attnotnull,
       a.attgenerated OPERATOR(pg_catalog.<>) '' OR a.attidentity OPERATOR(pg_catalog.<>) ''
  FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)
   AND a.attname OPERATOR(pg_catalog.=) $2 AND NOT a.attisdropped`

// checkColumn reports whether the column exists. It returns an error if the column exists and does not fit.
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

// exists reports whether the column exists, whether it fits or not.
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
