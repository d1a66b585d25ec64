package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/pressly/goose/v3/database"
)

// versionTable is where goose records the applied migrations.
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
	// exists is false if the table, or its schema, does not exist.
	exists bool
	// records are the applied migrations, the last applied first.
	records []record
}

func (h history) has(version int64) bool {
	return slices.ContainsFunc(h.records, func(r record) bool { return r.version == version })
}

// at returns when a version was recorded, or zero if it has no record.
func (h history) at(version int64) time.Time {
	i := slices.IndexFunc(h.records, func(r record) bool { return r.version == version })
	if i < 0 {
		return time.Time{}
	}
	return h.records[i].at
}

// readHistory reads the version table, in statements that take no lock stronger than a read's. It asks the catalog
// first, because reading a table that does not exist would leave an error in the server's log.
func readHistory(ctx context.Context, db querier) (h history, err error) {
	const exists = `SELECT pg_catalog.to_regclass('` + versionTable + `') IS NOT NULL`
	if err := db.QueryRowContext(ctx, exists).Scan(&h.exists); err != nil {
		return h, fmt.Errorf("look for the version table: %w", err)
	}
	if !h.exists {
		return h, nil
	}
	// A number, because in pgx's modes without binary results a time arrives in the session's DateStyle.
	const list = `SELECT version_id, (extract(epoch FROM tstamp) OPERATOR(pg_catalog.*) 1000000)::bigint
		FROM ` + versionTable +
		` WHERE is_applied ORDER BY id DESC`
	rows, err := db.QueryContext(ctx, list)
	if err != nil {
		return h, fmt.Errorf("read the version table: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err below has the outcome
	for rows.Next() {
		var r record
		var at int64
		if err := rows.Scan(&r.version, &at); err != nil {
			return h, fmt.Errorf("read the version table: %w", err)
		}
		r.at = time.UnixMicro(at)
		if r.version > 0 { // version 0 is goose's own first row
			h.records = append(h.records, r)
		}
	}
	if err := rows.Err(); err != nil {
		return h, fmt.Errorf("read the version table: %w", err)
	}
	return h, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// texts returns the rows of a query that yields one text per row.
func texts(ctx context.Context, db querier, query string) (list []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err below has the outcome
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// inTx runs fn in a READ COMMITTED transaction, whatever the session's default is. A snapshot that is older than the
// wait for the migration lock would be useless here.
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

// versionStore is goose's store on our version table. bootstrap has created that table, so goose need not look for it
// in a query that depends on search_path.
type versionStore struct{ database.Store }

// TableExists is an optional method that goose calls.
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
