package services_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// TestPgBouncerPools: two clients of a pool with one server connection meet in the
// same backend, which only a pooler in transaction mode does.
func TestPgBouncerPools(t *testing.T) {
	s := start(t, services.WayLocal)
	p, err := services.StartPgBouncer(t.Context(), s.PostgresURL, &services.PgBouncerOptions{PoolSize: 1})
	mustBeInstalled(t, err)
	var pids [2]int
	for i := range pids {
		config, err := pgx.ParseConfig(p.URL())
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	if pids[0] != pids[1] {
		t.Errorf("two clients are on backends %v, want one", pids)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a closed pooler answers")
	}
}

func TestPgBouncerOptionsAreChecked(t *testing.T) {
	for _, o := range []services.PgBouncerOptions{{PoolMode: "statement"}, {PoolSize: -1}, {Statements: -1}} {
		if _, err := services.StartPgBouncer(t.Context(), "postgres://127.0.0.1:1/d", &o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
