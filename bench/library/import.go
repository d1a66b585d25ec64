package library

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

// importEach measures an import of rows that each have a resource of their own, beside the same by hand, where one COPY
// and one merge write them all and nothing is fenced. The rows are there already, in no order, and all of them change.
func importEach(ctx context.Context, s Servers) (measure.Comparison, error) {
	c := measure.Comparison{
		Title: fmt.Sprintf("write %d rows of as many resources into a table that has them", s.Rows), Unit: "row",
	}
	plain, err := makeTableOf(ctx, s, "importplain", s.Rows)
	if err != nil {
		return c, err
	}
	made, err := makeTableOf(ctx, s, "import", s.Rows)
	if err != nil {
		return c, err
	}
	store, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return c, err
	}
	table, err := fencepost.NewTable[benchRow](ctx, store, fencepost.TableSpec{
		Schema: made.Schema, Name: made.Name, Key: made.Key, Resource: fencepost.PerRow("import:"),
	})
	if err != nil {
		return c, err
	}
	byHand := func(ctx context.Context, pass int) error { return loadByHand(ctx, s, plain.String(), pass) }
	ours := func(ctx context.Context, pass int) error {
		written, err := table.Import(ctx, []string{"id", "value"}, loadSource(s.Rows, pass), nil)
		if err == nil && written != int64(s.Rows) {
			err = fmt.Errorf("%w: %d rows written, not %d", pgx.ErrNoRows, written, s.Rows)
		}
		return err
	}
	c.Candidates = []measure.Candidate{
		{Name: "COPY + INSERT … ON CONFLICT, one resource a row", Each: s.Rows, Worker: passes(byHand)},
		{Name: "Table.Import, one resource a row", Target: 0.3, Each: s.Rows, Worker: passes(ours)},
	}
	return c, nil
}

// passes numbers the calls of each worker, from 1.
func passes(call func(ctx context.Context, pass int) error) func(int) func(context.Context) error {
	return func(int) func(context.Context) error {
		pass := 0
		return func(ctx context.Context) error {
			pass++
			return call(ctx, pass)
		}
	}
}
