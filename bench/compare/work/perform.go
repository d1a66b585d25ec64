package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrMissing says that a row of the operation does not exist.
var ErrMissing = errors.New("no such row")

// Lock says how rows are read.
type Lock string

// The locks.
const (
	NoLock  Lock = ""
	RowLock Lock = " FOR UPDATE"
)

// Seen is what was read. Write uses it.
type Seen struct {
	values, versions []int64 // of the operation's rows, in their order
	exists           bool    // the invoice
}

// Read reads what the operation is about: its rows, or whether its invoice is there.
func Read(ctx context.Context, db DB, op *Operation, lock Lock) (*Seen, error) {
	seen := &Seen{}
	if op.Workload == Invoice {
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM compare.invoice WHERE number = $1)`, op.Rows[0]).
			Scan(&seen.exists)
		return seen, wrap("look for the invoice", err)
	}
	rows, err := db.Query(
		ctx,
		`SELECT value, version FROM compare.item WHERE id = ANY($1) ORDER BY id`+string(lock),
		op.Rows,
	)
	if err != nil {
		return nil, wrap("read the rows", err)
	}
	var value, version int64
	_, err = pgx.ForEachRow(rows, []any{&value, &version}, func() error {
		seen.values, seen.versions = append(seen.values, value), append(seen.versions, version)
		return nil
	})
	if err == nil && len(seen.values) != len(op.Rows) {
		err = fmt.Errorf("%w: there are %d of %d", ErrMissing, len(seen.values), len(op.Rows))
	}
	return seen, wrap("read the rows", err)
}

const (
	insertInvoice = `
		WITH made AS (INSERT INTO compare.invoice (number, operation) VALUES ($2, $1) RETURNING number)
		INSERT INTO compare.journal (operation, row, delta) SELECT $1, number, 1 FROM made`
	insertUnique = `
		WITH made AS (INSERT INTO compare.invoice_unique (number, operation) VALUES ($2, $1) ON CONFLICT DO NOTHING
			RETURNING number)
		INSERT INTO compare.journal (operation, row, delta) SELECT $1, number, 1 FROM made`
	updateItems = `
		WITH wanted AS (SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS w(id, value, delta)),
		changed AS (
			UPDATE compare.item AS i SET value = w.value, version = i.version + 1
			FROM wanted AS w WHERE i.id = w.id RETURNING i.id, w.delta)
		INSERT INTO compare.journal (operation, row, delta) SELECT $1, id, delta FROM changed`
	updateSameVersions = `
		WITH wanted AS (SELECT *
			FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS w(id, value, delta, version)),
		changed AS (
			UPDATE compare.item AS i SET value = w.value, version = i.version + 1
			FROM wanted AS w WHERE i.id = w.id AND i.version = w.version RETURNING i.id, w.delta)
		INSERT INTO compare.journal (operation, row, delta) SELECT $1, id, delta FROM changed`
)

// Write writes what was read and has been worked out since, and the journal, in one statement. An invoice that was
// there is not written again.
func Write(ctx context.Context, db DB, op *Operation, seen *Seen) error {
	if op.Workload == Invoice {
		if seen.exists {
			return nil
		}
		_, err := db.Exec(ctx, insertInvoice, op.ID, op.Rows[0])
		return wrap("insert the invoice", err)
	}
	_, err := db.Exec(ctx, updateItems, op.ID, op.Rows, seen.risen(op), op.Deltas)
	return wrap("write the rows", err)
}

// WriteUnchanged is Write for the rows that still have the version that was read. If some rows do not, it returns
// false, and the caller rolls back.
func WriteUnchanged(ctx context.Context, db DB, op *Operation, seen *Seen) (all bool, err error) {
	tag, err := db.Exec(ctx, updateSameVersions, op.ID, op.Rows, seen.risen(op), op.Deltas, seen.versions)
	return tag.RowsAffected() == int64(len(op.Rows)), wrap("write the rows", err)
}

// InsertUnique inserts an invoice if a constraint admits one per number. An existing invoice is not an error.
func InsertUnique(ctx context.Context, db DB, op *Operation) error {
	_, err := db.Exec(ctx, insertUnique, op.ID, op.Rows[0])
	return wrap("insert the invoice", err)
}

// MarkDone uses up the operation's key. It returns false if the key was used before: then there is nothing left to do.
func MarkDone(ctx context.Context, db DB, op *Operation) (first bool, err error) {
	tag, err := db.Exec(ctx, `INSERT INTO compare.done (operation) VALUES ($1) ON CONFLICT DO NOTHING`, op.ID)
	return tag.RowsAffected() == 1, wrap("use the key", err)
}

// risen returns the values to write.
func (s *Seen) risen(op *Operation) []int64 {
	values := make([]int64, len(s.values))
	for i, v := range s.values {
		values[i] = v + op.Deltas[i]
	}
	return values
}

func wrap(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}
