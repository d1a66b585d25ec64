package main

import (
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openDB(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// account reads the balance and the token of the account. Both are 0 if it does not exist.
func account(t *testing.T, db *sql.DB) (balance, tok int64) {
	t.Helper()
	err := db.QueryRowContext(t.Context(),
		`SELECT coalesce(sum(balance), 0), coalesce(max(last_fencing_token), 0) FROM shop.account`).
		Scan(&balance, &tok)
	if err != nil {
		t.Fatal(err)
	}
	return balance, tok
}

// The story, on a database without fencepost.
func TestTheOvertakenWorkerIsRefused(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	var said []string
	if err := run(t.Context(), url, testenv.RedisURL(t), func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"first worker: deposited 10",
		"second worker: took over, deposited 5",
		"first worker: refused, its token is behind by 1",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q", said)
	}
	if n, tok := account(t, openDB(t, "postgres", url)); n != 15 || tok != 2 {
		t.Errorf("the balance is %d, stamped with %d", n, tok)
	}
}

// The protection also refuses a program that enters nothing. The control removes the protection.
func TestTheProtectionRefusesAWriteWithoutAClaim(t *testing.T) {
	t.Parallel()
	db := openDB(t, "postgres", testenv.Database(t))
	if err := prepare(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	const write = `INSERT INTO shop.account (id, balance) VALUES (1, 100)`
	_, err := db.ExecContext(t.Context(), write)
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "ZF004" ||
		!errors.Is(fence.GuardError(t.Context(), err), fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	if n, _ := account(t, db); n != 0 {
		t.Errorf("the balance is %d", n)
	}
	for _, control := range []string{`SELECT fencepost.unprotect('shop.account')`, write} {
		if _, err := db.ExecContext(t.Context(), control); err != nil {
			t.Errorf("the control: %v", err)
		}
	}
}
