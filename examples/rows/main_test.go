package main

import (
	"testing"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The program writes the invoice and its event together, on an empty database, and each time after that.
func TestTheRowAndItsEventAreWritten(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	for range 2 {
		if err := run(t.Context(), url, testenv.RedisURL(t)); err != nil {
			t.Fatal(err)
		}
	}
	var status string
	var stamped bool
	var events int
	err := testenv.PoolOn(t, url).QueryRow(t.Context(), `SELECT status, last_fencing_token > 0,
		(SELECT count(*) FROM outbox) FROM invoice`).Scan(&status, &stamped, &events)
	if err != nil || status != "paid" || !stamped || events != 2 {
		t.Errorf("status %q, stamped %v, %d events, %v", status, stamped, events, err)
	}
}

// An open invoice gets a reminder.
func TestAnOpenInvoiceIsReminded(t *testing.T) {
	t.Parallel()
	pool := testenv.PoolOn(t, testenv.EmptyDatabase(t))
	if err := prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	store, err := fencepost.New(pool, testenv.Redis(t), &fencepost.Options{Namespace: "rows-test"})
	if err != nil {
		t.Fatal(err)
	}
	invoices, err := declare(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := remind(t.Context(), store, invoices, "2026-11"); err != nil {
		t.Fatal(err)
	}
	var status string
	if err := pool.QueryRow(t.Context(), `SELECT status FROM invoice`).Scan(&status); err != nil || status != "reminded" {
		t.Errorf("status %q, %v", status, err)
	}
}
