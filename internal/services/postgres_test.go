package services_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func TestLocalPostgresCanBeHurt(t *testing.T) {
	mustServe(t, services.WayLocal)
	hurtPostgres(t)
}

// hurtPostgres tries everything that can be done to a test's own PostgreSQL.
func hurtPostgres(t *testing.T) {
	t.Helper()
	p, err := services.StartPostgres(t.Context(), "-c", "work_mem=123kB")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}()
	exec := func(sql string) (rows int64, err error) {
		conn, err := pgx.Connect(t.Context(), p.URL())
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		tag, err := conn.Exec(t.Context(), sql)
		return tag.RowsAffected(), err
	}
	must := func(sql string) {
		if n, err := exec(sql); err != nil || n != 1 {
			t.Fatalf("%s: %d rows, %v", sql, n, err)
		}
	}
	must(`SELECT FROM current_setting('work_mem') AS w WHERE w = '123kB'`)
	must(`SELECT FROM pg_authid WHERE rolname = 'postgres' AND rolpassword LIKE 'SCRAM-SHA-256$1000:%'`)
	must(`SELECT 1 INTO kept`)
	must(`SELECT 1 INTO UNLOGGED lost`)
	for what, end := range map[string]func(context.Context) error{"Shut": p.Shut, "Crash": p.Crash} {
		do(t, what, end)
		if _, err := exec(`SELECT`); err == nil {
			t.Errorf("%s: the server still answers", what)
		}
		if err := end(t.Context()); err == nil {
			t.Errorf("%s twice is no error", what)
		}
		do(t, "Start", p.Start)
		if err := p.Start(t.Context()); err == nil {
			t.Error("starting twice is no error")
		}
		must(`SELECT FROM kept`)
	}
	if n, err := exec(`SELECT FROM lost`); err != nil || n != 0 {
		t.Errorf("an unlogged table has %d rows after a crash, %v", n, err)
	}
}

// TestClustersAreCopiedAndHaveTheirOwnPasswords includes the control: without the folder nothing is copied, and so the
// server has another system identifier.
func TestClustersAreCopiedAndHaveTheirOwnPasswords(t *testing.T) {
	mustServe(t, services.WayLocal)
	t.Setenv("FENCEPOST_CLUSTERS", t.TempDir())
	first, password := identify(t)
	copied, other := identify(t)
	if copied != first {
		t.Errorf("the second server is no copy: its identifier is %s, not %s", copied, first)
	}
	if other == password {
		t.Error("both servers have one password")
	}
	t.Setenv("FENCEPOST_CLUSTERS", "")
	if fresh, _ := identify(t); fresh == first {
		t.Errorf("without a folder a server was copied: its identifier is %s", fresh)
	}
}

// identify starts a server and returns its system identifier, and the password that opens it.
func identify(t *testing.T) (identifier, password string) {
	t.Helper()
	p, err := services.StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}()
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	const ask = "SELECT system_identifier::text FROM pg_control_system()"
	if err := conn.QueryRow(t.Context(), ask).Scan(&identifier); err != nil {
		t.Fatal(err)
	}
	return identifier, conn.Config().Password
}
