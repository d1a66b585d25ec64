package fencetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// UntilBlockedBy waits until the server reports that a session waits for a lock of the transaction.
func UntilBlockedBy(t *testing.T, pool *pgxpool.Pool, holder pgx.Tx) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := testenv.UntilQuery(ctx, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND $1::int = ANY (pg_blocking_pids(pid)))`, holder.Conn().PgConn().PID())
	if err != nil {
		t.Fatalf("nobody waits: %v", err)
	}
}
