package fencepost

import (
	"context"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// Modify reads a row, lets fn change it in Go, and writes the columns that fn has changed, all in one guarded
// transaction that keeps the row to itself from the read to the commit: no other write lies between the two, not
// even that of another goroutine under the same lease, which Get and then Update would write over.
// nil means committed.
//
// fn gets a fresh row each time it is called, and is called again after a serialization failure or a deadlock, as
// [Store.Tx] does, so it must not keep state from one call to the next, nor the row itself. Where fn returns
// an error, nothing is written and the error is returned as it is. Where it changes nothing, nothing is
// written, the row's token included (see Claim). It may not change fields of the key, of the token column, or
// of columns that PostgreSQL computes: ErrInvalid, and nothing is written.
//
// While fn runs, the transaction is idle: [Options].MaxIdle bounds that, and a claim by another holder waits for it.
// fn must not use this table or another call of the store for the same row: it would wait for itself.
//
// A row ahead of its fence heals before fn is called. It costs four round trips. Errors besides fn's: those of
// Update, and those of Tx.
func (t *Table[T]) Modify(ctx context.Context, l *Lease, key Key, fn func(row *T) error) error {
	if fn == nil {
		return invalidf("a modification without a function")
	}
	key, err := t.check(ctx, l, key)
	if err != nil {
		return err
	}
	h := healing{store: t.store, lease: l}
	for {
		var c Claim
		var ahead *StaleError
		err := t.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			c = l.Claim() // the one that was entered: it cannot be lifted before tx ends
			ahead = nil
			m := modification[T]{table: t, fn: fn}
			err := fence.ModifyRow(ctx, tx, c, t.table, key, t.columns, m.read, m.change)
			var stale *StaleError
			if !m.called && errors.As(err, &stale) && stale.Row {
				ahead = stale
				return errAhead // no stale claim, and not to be reported as one
			}
			return err
		}, l)
		if ahead == nil {
			return err
		}
		again, err := h.after(ctx, c, ahead)
		if !again {
			return t.store.outcome(err)
		}
	}
}

// errAhead ends the transaction of a Modify that met a row ahead of its fence.
var errAhead = errors.New("fencepost: row ahead of its fence")

// modification is one run of a Modify.
type modification[T any] struct {
	table       *Table[T]
	fn          func(row *T) error
	before, row T
	called      bool
}

// read scans the row twice. The two share no memory, so what fn does to the insides of a slice or a map shows.
func (m *modification[T]) read(rows pgx.Rows) error {
	if !rows.Next() {
		return rows.Err()
	}
	before, err := pgx.RowToStructByName[T](rows)
	if err != nil {
		return err
	}
	m.before = before
	m.row, err = pgx.RowToStructByName[T](rows)
	return err
}

// change calls fn and returns what it has changed.
func (m *modification[T]) change() (Set, error) {
	m.called = true
	if err := m.fn(&m.row); err != nil {
		return nil, err
	}
	set := m.changed()
	if _, stamped := set[m.table.table.TokenColumn()]; stamped {
		return nil, invalidf("column %q is written by the fence alone", m.table.table.TokenColumn())
	}
	return set, m.table.checkSet(set)
}

// changed returns the columns whose fields differ.
func (m *modification[T]) changed() Set {
	set := make(Set)
	before, after := reflect.ValueOf(&m.before).Elem(), reflect.ValueOf(&m.row).Elem()
	for _, f := range m.table.fields {
		value := after.FieldByIndex(f.path).Interface()
		if !reflect.DeepEqual(before.FieldByIndex(f.path).Interface(), value) {
			set[f.column] = value
		}
	}
	return set
}
