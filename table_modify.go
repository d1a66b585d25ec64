package fencepost

import (
	"context"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgrow"
)

// Modify reads a row, lets fn change it in Go, and writes the columns that fn has changed, all in one guarded
// transaction. The transaction locks the row from the read to the commit, so no other write comes between the two. That
// includes a write by another goroutine under the same lease, which Get followed by Update would overwrite. nil means
// committed.
//
// fn gets a fresh row each time it is called. It is called again after a serialization failure or a deadlock, as in
// [Store.Tx], so it must not keep the row, or other state, from one call to the next. If fn returns an error, nothing
// is written and the error is returned as it is. If fn changes nothing, nothing is written, not even the row's token
// (see Stamp). fn must not change fields of the key, of the token column, or of columns that PostgreSQL computes. If it
// does, Modify returns ErrInvalid and nothing is written.
//
// While fn runs, the transaction is idle, and a claim by another holder waits for it. [Options].MaxIdle bounds how long
// it may be idle. fn must not access the same row through this table or another call of the store, because it would
// wait for itself.
//
// A row ahead of its fence heals before fn is called. Modify costs four round trips. Errors other than fn's are those
// of Update and of Tx.
func (t *Table[T]) Modify(ctx context.Context, l *Lease, key Key, fn func(row *T) error) error {
	if fn == nil {
		return invalidf("a modification without a function")
	}
	key, err := t.check(ctx, l, key)
	if err != nil {
		return err
	}
	return t.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		e, err := entered(tx, l)
		if err != nil {
			return err
		}
		return t.modify(ctx, e, key, fn)
	}, l)
}

// modify is a Modify inside a transaction.
func (t *Table[T]) modify(ctx context.Context, e entry, key Key, fn func(row *T) error) error {
	m := modification[T]{table: t, fn: fn}
	err := pgrow.ModifyRow(ctx, e.tx, e.claim, t.table, key, t.columns, m.read, m.change)
	if m.called {
		return err // fn may have returned a *StaleError about something else
	}
	return e.rowError(err)
}

// modification is one run of a Modify.
type modification[T any] struct {
	table       *Table[T]
	fn          func(row *T) error
	before, row T
	called      bool
}

// read scans the row twice. The two copies share no memory, so a change that fn makes inside a slice or a map is
// detected.
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
