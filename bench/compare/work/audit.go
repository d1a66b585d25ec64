package work

import (
	"context"
	"fmt"
)

// Acknowledged is an operation that was reported to a worker as carried out.
type Acknowledged struct {
	ID   string  `json:"id"`
	Rows []int64 `json:"rows"`
}

// Audit is the state of the rows after the work.
type Audit struct {
	// Effects is how many operations are in the journal.
	Effects int64
	// LostUpdates is how many changes were committed and are not in the rows, and how many operations were
	// acknowledged and have not been committed.
	LostUpdates int64
	// Duplicates is how often operations took effect again; of invoices, how many there are beside the first of
	// each number.
	Duplicates int64
	// Unbalanced is how far the sum of all accounts is from what it was, where only transfers change it.
	Unbalanced int64
}

// What the audit asks. A row's deltas have one size and one sign, so what is missing, in units of it, is the number
// of lost updates. An operation on several rows is acknowledged as a whole.
const (
	effectsSQL = `SELECT count(DISTINCT operation) FROM compare.journal`

	lostItemsSQL = `
		SELECT coalesce(sum(abs(coalesce(j.total, 0) - (i.value - i.initial)) / coalesce(j.size, 1)), 0)::bigint
		FROM compare.item AS i
		LEFT JOIN (SELECT row, sum(delta)::bigint AS total, max(abs(delta)) AS size FROM compare.journal
			GROUP BY row) AS j ON j.row = i.id`

	neverDoneSQL = `
		SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS a(operation, rows)
		LEFT JOIN (SELECT operation, count(DISTINCT row) AS rows FROM compare.journal GROUP BY operation) AS j
			USING (operation)
		WHERE coalesce(j.rows, 0) < a.rows`

	repeatedSQL = `
		SELECT coalesce(sum(times - 1), 0)::bigint FROM (
			SELECT max(times) AS times FROM (
				SELECT operation, count(*) AS times FROM compare.journal GROUP BY operation, row) AS each
			GROUP BY operation) AS operations`

	unbalancedSQL = `SELECT coalesce(abs(sum(value - initial)), 0)::bigint FROM compare.item`

	// An invoice is there for everybody who wanted it, whoever made it.
	lostInvoicesSQL = `
		WITH invoice AS (SELECT number FROM compare.invoice UNION ALL SELECT number FROM compare.invoice_unique),
		made AS (SELECT row, count(*) AS times FROM compare.journal GROUP BY row)
		SELECT (SELECT coalesce(sum(greatest(times - (SELECT count(*) FROM invoice WHERE number = row), 0)), 0)
			FROM made)::bigint
			+ (SELECT count(*) FROM unnest($1::bigint[]) AS wanted(number) WHERE number NOT IN (SELECT number FROM invoice))`

	repeatedInvoicesSQL = `
		SELECT coalesce(sum(times - 1), 0)::bigint FROM (
			SELECT count(*) AS times FROM (
				SELECT number FROM compare.invoice UNION ALL SELECT number FROM compare.invoice_unique) AS invoice
			GROUP BY number) AS numbers`
)

// question is a query for one number, with where it goes.
type question struct {
	into *int64
	sql  string
	args []any
}

// Look counts the results of a workload. Call it when no worker works any more. ctx bounds it.
func Look(ctx context.Context, db DB, w Workload, acknowledged []Acknowledged) (Audit, error) {
	var a Audit
	var never int64
	questions := []question{{&a.Effects, effectsSQL, nil}}
	if w == Invoice {
		numbers := make([]int64, 0, len(acknowledged))
		for _, o := range acknowledged {
			numbers = append(numbers, o.Rows...)
		}
		questions = append(questions,
			question{&a.LostUpdates, lostInvoicesSQL, []any{numbers}},
			question{&a.Duplicates, repeatedInvoicesSQL, nil})
	} else {
		ids, rows := make([]string, len(acknowledged)), make([]int64, len(acknowledged))
		for i, o := range acknowledged {
			ids[i], rows[i] = o.ID, int64(len(o.Rows))
		}
		questions = append(questions,
			question{&a.LostUpdates, lostItemsSQL, nil},
			question{&never, neverDoneSQL, []any{ids, rows}},
			question{&a.Duplicates, repeatedSQL, nil})
	}
	if w == Transfer {
		questions = append(questions, question{&a.Unbalanced, unbalancedSQL, nil})
	}
	for _, q := range questions {
		if err := db.QueryRow(ctx, q.sql, q.args...).Scan(q.into); err != nil {
			return Audit{}, fmt.Errorf("audit: %w", err)
		}
	}
	a.LostUpdates += never
	return a, nil
}
