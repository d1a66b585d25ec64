package pgbatch_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

func upTo(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i + 1
	}
	return ids
}

// report returns the *BatchError in an error as short text: its counts, and the outcome of each listed row.
func report(err error) string {
	var many *pgbatch.BatchError
	if !errors.As(err, &many) {
		return fmt.Sprintf("no BatchError: %v", err)
	}
	text := fmt.Sprintf("%d of %d written", many.Written, many.Rows)
	for _, f := range many.Failures {
		text += fmt.Sprintf("; %v %s", f.Key[0], outcome(f.Err))
	}
	return text
}

func outcome(err error) string {
	var stale *pgerr.StaleError
	switch {
	case errors.As(err, &stale) && stale.Row:
		return fmt.Sprintf("stale %d < %d", stale.Token, stale.Current)
	case errors.Is(err, pgerr.ErrNotFound):
		return "missing"
	case errors.Is(err, pgerr.ErrRefused):
		return "refused"
	}
	return fmt.Sprint(err)
}

// untilWaiting waits for a session of the database to wait for a lock.
func untilWaiting(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for {
		var waiting bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting {
			return
		}
	}
}
