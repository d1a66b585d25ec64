package pgbatch_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// A key that its column rounds is compared as it is stored: a row that was written is not told as refused, and a row
// that is ahead is told as stale.
func TestEachRowWithAKeyThatItsColumnRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ column, domain, given, stored string }{
		"numeric":     {column: "numeric(8,2)", given: "1.005", stored: "1.01"},
		"timestamptz": {column: "timestamptz(3)", given: "2026-01-02 03:04:05.6789Z", stored: "2026-01-02 03:04:05.679Z"},
		"interval":    {column: "interval(0)", given: "1.7 seconds", stored: "2 seconds"},
		"domain":      {column: "app.price", domain: "numeric(8,1)", given: "1.26", stored: "1.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fencetest.SetupBatch(t, 0)
			if c.domain != "" {
				fencetest.Exec(t, m.Pool, `CREATE DOMAIN app.price AS `+c.domain)
			}
			fencetest.Exec(t, m.Pool, `CREATE TABLE app.rounded (id `+c.column+` PRIMARY KEY, value text,
				last_fencing_token bigint NOT NULL DEFAULT 0)`)
			table := pgtable.Table{Schema: "app", Name: "rounded", Key: []string{"id"}}
			columns, err := pgtable.Inspect(t.Context(), m.Pool, table)
			if err != nil {
				t.Fatal(err)
			}
			writer, err := pgbatch.NewBatchWriter(table, columns)
			if err != nil {
				t.Fatal(err)
			}
			write := func(tok token.Token) error {
				batch, err := writer.Batch([]pgbatch.Change{{Key: pgtable.Key{c.given}, Set: pgtable.Set{"value": "new"}}})
				if err != nil {
					return err
				}
				return pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
					return batch.UpsertEach(t.Context(), tx, []token.Token{tok})
				})
			}
			for range 2 { // inserted, and updated
				if err := write(5); err != nil {
					t.Fatal(err)
				}
			}
			var n int
			err = m.Pool.QueryRow(t.Context(), `SELECT count(*) FROM app.rounded WHERE id = '`+c.stored+`'::`+c.column).Scan(&n)
			if err != nil || n != 1 {
				t.Errorf("%d rows, %v", n, err)
			}
			var report *pgbatch.BatchError
			if err := write(4); !errors.Is(err, pgerr.ErrStale) || !errors.As(err, &report) || report.Stale != 1 {
				t.Errorf("a token below the row's: %v", err)
			}
		})
	}
}
