package fencepost

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// AdvisoryTable is a table whose rows are written in the transactions of an [AdvisoryTx]. It has no methods that write
// outside such a transaction. T, keys and rules are as for a [Table]. It is safe for concurrent use.
type AdvisoryTable[T any] struct{ table *Table[T] }

// NewAdvisoryTable declares a table to an AdvisoryTx, as [NewTable] does to a Store. It checks once, in the catalog,
// whether the table can be fenced. Errors are those of NewTable. ctx bounds the call.
func NewAdvisoryTable[T any](ctx context.Context, a *AdvisoryTx, spec TableSpec) (*AdvisoryTable[T], error) {
	if a == nil {
		return nil, invalidf("a table needs an AdvisoryTx")
	}
	t, err := declare[T](ctx, a.store, spec)
	if err != nil {
		return nil, err
	}
	return &AdvisoryTable[T]{table: t}, nil
}

// Resource returns the resource that the row with a key belongs to. Pass it to [AdvisoryTx.Do] to work on the row. See
// [Table.Resource].
func (t *AdvisoryTable[T]) Resource(key Key) (string, error) { return t.table.Resource(key) }

// In returns the table inside a transaction of the AdvisoryTx. See [Table.In].
func (t *AdvisoryTable[T]) In(tx pgx.Tx) TableTx[T] { return t.table.In(tx) }
