package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/database"
)

// versionTable is where goose records what is applied.
const versionTable = "fencepost.goose_version"

//go:embed bootstrap.sql
var bootstrapSQL string

// record is a row of the version table.
type record struct {
	version int64
	at      time.Time
}

// history is what the version table says.
type history struct {
	// exists is false where the table, or its schema, is not there yet.
	exists bool
	// records are the applied migrations, the last applied first.
	records []record
}

// readHistory reads the version table, in statements that take no lock beyond a read's. It asks the
// catalog first: reading a table that is not there would leave an error in the server's log.
func readHistory(ctx context.Context, db *sql.DB) (h history, err error) {
	const exists = `SELECT pg_catalog.to_regclass('` + versionTable + `') IS NOT NULL`
	if err := db.QueryRowContext(ctx, exists).Scan(&h.exists); err != nil {
		return h, fmt.Errorf("look for the version table: %w", err)
	}
	if !h.exists {
		return h, nil
	}
	const list = `SELECT version_id, tstamp FROM ` + versionTable + ` WHERE is_applied ORDER BY id DESC`
	rows, err := db.QueryContext(ctx, list)
	if err != nil {
		return h, fmt.Errorf("read the version table: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err below has the outcome
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.version, &r.at); err != nil {
			return h, fmt.Errorf("read the version table: %w", err)
		}
		if r.version > 0 { // goose's row for the beginning
			h.records = append(h.records, r)
		}
	}
	if err := rows.Err(); err != nil {
		return h, fmt.Errorf("read the version table: %w", err)
	}
	return h, nil
}

// bootstrap creates what goose needs, under the migration lock.
func bootstrap(ctx context.Context, db *sql.DB) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, bootstrapSQL)
		return err
	})
}

// inTx runs fn in a READ COMMITTED transaction, whatever the session's default: a snapshot older
// than the wait for the migration lock is of no use to anybody here.
func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit; the first error is the one to return
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// versionStore is goose's store on our version table, which bootstrap has created: goose need not
// look for it, in a query that depends on search_path.
type versionStore struct{ database.Store }

// TableExists is an optional method that goose asks for.
func (versionStore) TableExists(context.Context, database.DBTxConn) (bool, error) {
	return true, nil
}

func newVersionStore() (database.Store, error) {
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, fmt.Errorf("make the version store: %w", err)
	}
	return versionStore{store}, nil
}
