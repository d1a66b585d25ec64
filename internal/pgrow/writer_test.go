package pgrow_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// TestUpdatesOfOneWriterKeepTheirColumnsApart: goroutines that share a Writer write different columns at the same time,
// and each of them writes its own. The Writer keeps the texts of the last update alone.
func TestUpdatesOfOneWriterKeepTheirColumnsApart(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	columns := []string{"a", "b", "c"}
	if _, err := pool.Exec(t.Context(), `ALTER TABLE app.item ADD a text, ADD b text, ADD c text`); err != nil {
		t.Fatal(err)
	}
	c := pgclaim.Send(fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7)))
	writer := pgrow.NewWriter(fencetest.Rows)
	var group sync.WaitGroup
	for i, column := range columns {
		group.Go(func() {
			for pass := range 50 {
				set := pgtable.Set{column: fmt.Sprint(column, pass)}
				if pass%2 == 1 {
					set["value"] = "both"
				}
				if err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
					return writer.Update(t.Context(), conn, c, pgtable.Key{i + 1}, set)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for i, column := range columns {
		var own string
		var written int
		if err := pool.QueryRow(t.Context(),
			`SELECT coalesce(`+column+`, ''), num_nonnulls(a, b, c) FROM app.item WHERE id = $1`, i+1).
			Scan(&own, &written); err != nil {
			t.Fatal(err)
		}
		if own != column+"49" || written != 1 {
			t.Errorf("row %d: column %s is %q, and %d columns were written", i+1, column, own, written)
		}
	}
}

// TestAWriterChecksAnUpdateLikeTheOneBefore: the columns of the last update are not checked again, its key is.
func TestAWriterChecksAnUpdateLikeTheOneBefore(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := pgclaim.Send(fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 7)))
	writer := pgrow.NewWriter(fencetest.Rows)
	update := func(key pgtable.Key, column string) error {
		return fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
			return writer.Update(t.Context(), conn, c, key, pgtable.Set{column: "x"})
		})
	}
	if err := update(pgtable.Key{1}, "value"); err != nil {
		t.Fatal(err)
	}
	fencetest.WantErr(t, update(pgtable.Key{nil}, "value"), fence.ErrInvalid)
	fencetest.WantErr(t, update(pgtable.Key{1, 2}, "value"), fence.ErrInvalid)
	fencetest.WantErr(t, update(pgtable.Key{1}, fence.DefaultTokenColumn), fence.ErrInvalid)
}
