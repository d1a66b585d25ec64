package pgbatch_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// valuer is a type with its own conversion for the database.
type valuer struct{ to driver.Value }

func (v valuer) Value() (driver.Value, error) { return v.to, nil }

type pointerValuer struct{}

func (v *pointerValuer) Value() (driver.Value, error) {
	if v == nil {
		return int64(1), nil
	}
	return nil, nil
}

type brokenValuer struct{}

func (brokenValuer) Value() (driver.Value, error) { return nil, errors.New("broken") }

// C51: a value that pgx would send as NULL is not a key, whatever its type.
func TestCase51_WhatIsNullIsNoKey(t *testing.T) {
	t.Parallel()
	table := pgtable.Table{Schema: "app", Name: "item", Key: []string{"a", "b"}}
	text, number := "x", 1
	inner := (*string)(nil)
	for name, value := range map[string]any{
		"nil":                     nil,
		"pointer":                 (*string)(nil),
		"pointer to a pointer":    &inner,
		"bytes":                   []byte(nil),
		"valuer":                  valuer{},
		"pointer to a valuer":     (*valuer)(nil),
		"valuer of nil bytes":     valuer{[]byte(nil)},
		"valuer behind a pointer": &pointerValuer{},
		"NullString":              sql.NullString{},
		"NullInt64":               sql.NullInt64{},
		"Null":                    sql.Null[string]{},
		"*NullString":             &sql.NullString{},
		"Text":                    pgtype.Text{},
		"Int8":                    pgtype.Int8{},
		"UUID":                    pgtype.UUID{},
		"*UUID":                   &pgtype.UUID{},
		"Date":                    pgtype.Date{},
		"Timestamptz":             pgtype.Timestamptz{},
		"Numeric":                 pgtype.Numeric{},
		"Range":                   pgtype.Range[pgtype.Int8]{},
		"Array":                   pgtype.Array[int]{},
		"zero":                    zeronull.Text(""),
		"zero UUID":               zeronull.UUID{},
	} {
		if err := pgtable.CheckKey(table, pgtable.Key{1, value}); !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range map[string]any{
		"text": text, "pointer": &text, "number": number, "*number": &number, "bytes": []byte{},
		"uuid": [16]byte{}, "valuer": valuer{int64(0)},
		"nil that is a value": (*pointerValuer)(nil), "broken": brokenValuer{}, "NullString": sql.NullString{Valid: true},
		"Text": pgtype.Text{Valid: true}, "Int8": pgtype.Int8{Valid: true}, "UUID": pgtype.UUID{Valid: true},
		"*UUID": &pgtype.UUID{Valid: true},
		"named": pgx.QueryExecMode(1), "zero": zeronull.Text("x"),
	} {
		if err := pgtable.CheckKey(table, pgtable.Key{1, value}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// C51: no form of write sends anything for such a key. A load finds it when it reads the row, and writes nothing.
func TestCase51_NoFormSendsANullInAKey(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	ctx, key, set := t.Context(), pgtable.Key{pgtype.Int8{}}, pgtable.Set{"value": "new"}
	nothing := func(pgx.Rows) error { return nil }
	_, batch := m.Batches.Batch([]pgbatch.Change{{Key: pgtable.Key{1}, Set: set}, {Key: key, Set: set}})
	err := fencetest.OnConn(ctx, m.Pool, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		modified := pgrow.ModifyRow(
			ctx,
			tx,
			m.Claim,
			fencetest.Rows,
			key,
			[]string{"value"},
			nothing,
			func() (pgtable.Set, error) { return set, nil },
		)
		for name, err := range map[string]error{
			"modify": modified, "batch": batch,
			"bare":         pgrow.Update(ctx, closedDB{}, fencetest.Rows, 9, key, set),
			"bare upsert":  fencetest.Second(pgrow.Upsert(ctx, closedDB{}, fencetest.Rows, 9, key, set)),
			"database/sql": pgrow.UpdateSQL(ctx, nil, fencetest.Rows, 9, key, set),
			"SQL upsert":   fencetest.Second(pgrow.UpsertSQL(ctx, nil, fencetest.Rows, 9, key, set)),
			"update":       fencetest.UpdateOn(ctx, nil, m.Claim, fencetest.Rows, key, set),
			"claim":        pgrow.StampRow(ctx, nil, m.Claim, fencetest.Rows, key, []string{"value"}, nothing),
			"insert":       pgrow.InsertClaimed(ctx, nil, m.Claim, fencetest.Rows, key, set),
			"upsert":       fencetest.Second(pgrow.UpsertClaimed(ctx, nil, m.Claim, fencetest.Rows, key, set)),
			"delete":       fencetest.DeleteOn(ctx, nil, m.Claim, fencetest.Rows, key),
		} {
			if !errors.Is(err, pgerr.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []pgx.CopyFromSource{
		pgx.CopyFromRows([][]any{{1, "new"}, {nil, "new"}}), pgx.CopyFromRows([][]any{{pgtype.Int8{}, "new"}}),
	} {
		if err := m.Load(ctx, m.Claim, source, nil); !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("load: %v", err)
		}
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// closedDB panics if it is used.
type closedDB struct{ pgsession.DB }
