package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/examples/sqlc/shopdb"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

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
		"first worker: its lease is lost",
		"first worker: refused as stale",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q", said)
	}
	pool := testenv.PoolOn(t, url)
	balance, err := shopdb.New(pool).Balance(t.Context(), 1)
	if err != nil || balance != 15 {
		t.Errorf("the balance is %d, %v", balance, err)
	}
}

// The protection refuses generated queries on a transaction without a guard. The control removes the protection.
func TestTheProtectionRefusesQueriesWithoutAClaim(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	if err := prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	write := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return deposit(t.Context(), tx, 100) })
	}
	err := write()
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "ZF004" ||
		!errors.Is(fence.GuardError(t.Context(), err), fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	if _, err := shopdb.New(pool).Balance(t.Context(), 1); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("there is an account, or %v", err)
	}
	if _, err := pool.Exec(t.Context(), `SELECT fencepost.unprotect('shop.account')`); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("the control: %v", err)
	}
}
