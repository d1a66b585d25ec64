package migrations

import (
	"context"
	"database/sql"
	"fmt"
)

// The library's own migrations whose Down refuses while what they created is in use.
const (
	fenceVersion   = 1
	onceVersion    = 3
	protectVersion = 4
)

// forget removes, in a transaction of its own, what makes a migration's Down refuse.
func (r *runner) forget(ctx context.Context, version int64) error {
	var table string
	var also []string
	what := func(ctx context.Context, tx *sql.Tx) error {
		if err := lockTable(ctx, tx, table, accessExclusive); err != nil {
			return err
		}
		return execAll(ctx, tx, append([]string{`TRUNCATE ` + table}, also...)...)
	}
	switch version {
	case fenceVersion:
		table = "fencepost.fence"
		also = []string{`UPDATE fencepost.floor SET token = 0`}
	case onceVersion:
		table = "fencepost.ledger"
	case protectVersion:
		table, what = "fencepost.protected", unprotectAll
	default:
		return nil
	}
	const exists = `SELECT pg_catalog.to_regclass($1::pg_catalog.text) IS NOT NULL`
	return r.lockedTx(ctx, func(tx *sql.Tx) error {
		var there bool
		if err := tx.QueryRowContext(ctx, exists, table).Scan(&there); err != nil || !there {
			return err
		}
		return what(ctx, tx)
	})
}

// lockedTx runs fn under the migration lock, in a transaction of its own.
func (r *runner) lockedTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return retryLocked(ctx, r.opts.Logger, func() error {
		return r.attempt(ctx, r.opts.Logger, func() error {
			return inTx(ctx, r.db, func(tx *sql.Tx) error {
				if err := lockMigrations(ctx, tx); err != nil {
					return err
				}
				return fn(tx)
			})
		})
	})
}

// The tables that have a protection: first those that protect has recorded, then the others.
const (
	protectedTables = `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM fencepost.protected AS p
		JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) fencepost.table_of(p)
		JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace`
	strayTables = `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class AS c
		JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		WHERE n.nspname OPERATOR(pg_catalog.<>) 'fencepost' AND EXISTS (
			SELECT FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) g.tgfoid
			 WHERE g.tgrelid OPERATOR(pg_catalog.=) c.oid
			   AND f.pronamespace OPERATOR(pg_catalog.=) 'fencepost'::pg_catalog.regnamespace)`
)

func unprotectAll(ctx context.Context, tx *sql.Tx) error {
	for _, query := range []string{protectedTables, strayTables} {
		tables, err := texts(ctx, tx, query)
		if err != nil {
			return fmt.Errorf("list tables with a protection: %w", err)
		}
		for _, table := range tables {
			if err := lockTable(ctx, tx, table, accessExclusive); err != nil {
				return err
			}
			const unprotect = `SELECT fencepost.unprotect($1::pg_catalog.text::pg_catalog.regclass)`
			if _, err := tx.ExecContext(ctx, unprotect, table); err != nil {
				return err
			}
		}
	}
	return nil
}
