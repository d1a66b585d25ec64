package pgbatch_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
)

// manyModel is what rows a table has, by id: their tokens, and whether they carry the new value.
type manyModel map[int]modelRow

type modelRow struct {
	token   int
	written bool
}

func (m manyModel) String() string {
	var text strings.Builder
	for id := range 10 {
		if row, there := m[id]; there {
			fmt.Fprintf(&text, "%d:%d:%t ", id, row.token, row.written)
		}
	}
	return text.String()
}

// write is what a batch under token 5 does and says: all of it here, with nothing of SQL in it.
func (m manyModel) write(ids []int, inserts, partial bool) string {
	var failures []string
	good := 0
	for _, id := range ids {
		row, there := m[id]
		switch {
		case there && row.token > 5:
			failures = append(failures, fmt.Sprintf("; %d stale 5 < %d", id, row.token))
		case !there && !inserts:
			failures = append(failures, fmt.Sprintf("; %d missing", id))
		default:
			good++
		}
	}
	if len(failures) > 0 && !partial {
		return fmt.Sprintf("0 of %d written%s", len(ids), strings.Join(failures, ""))
	}
	for _, id := range ids {
		if row, there := m[id]; there && row.token <= 5 || !there && inserts {
			m[id] = modelRow{5, true}
		}
	}
	if len(failures) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d written%s", good, len(ids), strings.Join(failures, ""))
}

// TestManyRowsDoWhatTheModelDoes: whatever the rows and the batch, alone at the gate or not, table and report match the
// model.
func TestManyRowsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 0)
	rapid.Check(t, func(r *rapid.T) {
		model := manyModel{}
		fencetest.Exec(t, m.Pool, `TRUNCATE app.item`)
		for id, tok := range rapid.MapOfN(rapid.IntRange(1, 8),
			rapid.SampledFrom([]int{0, 4, 5, 6, 9}), 0, 8).Draw(r, "rows") {
			model[id] = modelRow{token: tok}
			fencetest.Exec(t, m.Pool, `INSERT INTO app.item (id, value, last_fencing_token) VALUES ($1, 'old', $2)`, id, tok)
		}
		ids := rapid.Permutation([]int{1, 2, 3, 4, 5, 6, 7, 8}).Draw(r, "order")[:rapid.IntRange(1, 8).Draw(r, "size")]
		how := rapid.SampledFrom([]string{"update", "upsert", "load"}).Draw(r, "how")
		opts := &pgbatch.BatchOptions{Partial: rapid.Bool().Draw(r, "partial")}
		if rapid.Bool().Draw(r, "company") {
			company, err := m.Pool.Begin(t.Context())
			if err != nil {
				r.Fatal(err)
			}
			defer func() { _ = company.Rollback(t.Context()) }()
			if _, err := company.Exec(
				t.Context(),
				`SELECT pg_advisory_xact_lock_shared(1179534161, hashtext('r'))`,
			); err != nil {
				r.Fatal(err)
			}
		}
		var err error
		switch how {
		case "load":
			err = m.Load(t.Context(), m.Claim, fencetest.Source("new", ids...), opts)
		case "upsert":
			err = m.Write(t.Context(), fencetest.Changes("new", ids...), opts, fencetest.UpsertBatch)
		default:
			err = m.Write(t.Context(), fencetest.Changes("new", ids...), opts, (*pgbatch.Batch).Update)
		}
		want := model.write(inReportOrder(how, ids), how != "update", opts.Partial)
		if got := report(err); want != got && (want != "" || err != nil) {
			r.Errorf("%s said %s, the model %s", how, got, want)
		}
		if got := tableAsModel(t, m); got.String() != model.String() {
			r.Errorf("%s left %v, the model %v", how, got, model)
		}
	})
}

// inReportOrder is the order in which failures are listed: a load's by key, a batch's as given.
func inReportOrder(how string, ids []int) []int {
	if how != "load" {
		return ids
	}
	sorted := make([]int, 0, len(ids))
	for id := range 10 {
		for _, given := range ids {
			if given == id {
				sorted = append(sorted, id)
			}
		}
	}
	return sorted
}

func tableAsModel(t *testing.T, m *fencetest.BatchBundle) manyModel {
	t.Helper()
	got, err := m.Pool.Query(t.Context(), `SELECT id, last_fencing_token, value = 'new' FROM app.item`)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	model := manyModel{}
	for got.Next() {
		var id int
		var row modelRow
		if err := got.Scan(&id, &row.token, &row.written); err != nil {
			t.Fatal(err)
		}
		model[id] = row
	}
	return model
}
