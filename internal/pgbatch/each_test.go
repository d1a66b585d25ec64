package pgbatch_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/token"
)

// upsertEach writes rows under tokens, without a guard.
func upsertEach(t *testing.T, m *fencetest.BatchBundle, rows []pgbatch.Change, tokens ...token.Token) error {
	t.Helper()
	batch, err := m.Batches.Batch(rows)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error { return batch.UpsertEach(t.Context(), tx, tokens) })
}

// Each row is compared with its own token and stamped with it. Rows that are ahead are told, and then nothing is
// written.
func TestEachRowHasItsOwnToken(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	rows := fencetest.Changes("new", 4, 2, 1, 3)
	if err := upsertEach(t, m, rows, 7, 5, 4, 6); err != nil {
		t.Fatal(err)
	}
	for id, tok := range map[int]token.Token{1: 4, 2: 5, 3: 6, 4: 7} {
		if got := fencetest.Read(t, m.Pool, id); got.Token != tok || got.Value != "new" {
			t.Errorf("row %d: %+v", id, got)
		}
	}
	err := upsertEach(t, m, fencetest.Changes("late", 1, 2, 5, 3), 9, 4, 9, 5)
	var report *pgbatch.BatchError
	fencetest.WantErr(t, err, pgerr.ErrStale)
	if !errors.As(err, &report) || report.Stale != 2 || report.Failed() != 2 || report.Rows != 4 || report.Written != 0 {
		t.Fatalf("%+v", report)
	}
	fencetest.WantStale(t, report.Failures[0].Err, 4, 5)
	fencetest.WantStale(t, report.Failures[1].Err, 5, 6)
	if n := fencetest.Count(t, m.Pool, `value = 'late'`); n != 0 || report.Failures[0].Index != 1 {
		t.Errorf("%d rows were written, and %+v", n, report.Failures)
	}
	fencetest.WantErr(t, upsertEach(t, m, rows, 1, 2), pgerr.ErrInvalid)
	fencetest.WantErr(t, upsertEach(t, m, fencetest.Changes("x", 1, 1), 9, 9), pgerr.ErrInvalid)
}

// A trigger that changes the proposed token, or keeps a row from being written, is found, and nothing is written.
func TestEachRowCarriesItsTokenInTheEnd(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"raises":  `NEW.last_fencing_token := NEW.last_fencing_token + 100; RETURN NEW`,
		"lowers":  `NEW.last_fencing_token := 0; RETURN NEW`,
		"refuses": `RETURN NULL`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fencetest.SetupBatch(t, 3)
			fencetest.Exec(t, m.Pool, `CREATE FUNCTION app.meddle() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN IF NEW.id <> 2 AND NEW.id <> 5 THEN RETURN NEW; END IF; `+body+`; END $$`)
			fencetest.Exec(t, m.Pool,
				`CREATE TRIGGER meddle BEFORE INSERT ON app.item FOR EACH ROW EXECUTE FUNCTION app.meddle()`)
			err := upsertEach(t, m, fencetest.Changes("new", 1, 2, 3, 4, 5), 5, 5, 5, 5, 5)
			var report *pgbatch.BatchError
			if !errors.As(err, &report) || report.Failed() != 2 {
				t.Errorf("got %v", err)
			}
			if n := fencetest.Count(t, m.Pool, `value = 'new'`); n != 0 {
				t.Errorf("%d rows were written", n)
			}
		})
	}
}

// The control of the guard: without it, rows are written under claims that have been overtaken. Their tokens alone do
// not stop that, because the rows carry none that is higher.
func TestControlRowsAreWrittenUnderOvertakenClaims(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 2)
	fencetest.MustRaise(t, m.Pool, fencetest.ClaimOf("r", 6)) // m.Claim has token 5
	if err := upsertEach(t, m, fencetest.Changes("late", 1, 2), 5, 5); err != nil {
		t.Fatal(err)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'late'`); n != 2 {
		t.Errorf("%d rows were written", n)
	}
}
