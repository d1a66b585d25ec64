package main

import (
	"errors"
	"testing"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fenceposttest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { fenceposttest.Main(m) }

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

// An open invoice gets a reminder, from the worker that holds it and from no other.
func TestAnOpenInvoiceIsReminded(t *testing.T) {
	t.Parallel()
	env := fenceposttest.New(t, nil)
	if err := prepare(t.Context(), env.Pool); err != nil {
		t.Fatal(err)
	}
	invoices, err := declare(t.Context(), env.Store)
	if err != nil {
		t.Fatal(err)
	}
	overtaken, err := env.Store.Acquire(t.Context(), "invoice:2026-11", nil)
	if err != nil {
		t.Fatal(err)
	}
	env.TakeOver("invoice:2026-11")
	err = invoices.Update(t.Context(), overtaken, fencepost.Key{"2026-11"}, fencepost.Set{"status": "void"})
	if !errors.Is(err, fencepost.ErrStale) {
		t.Errorf("an overtaken worker wrote: %v", err)
	}
	_ = overtaken.Release(t.Context())
	if err := remind(t.Context(), env.Store, invoices, "2026-11"); err != nil {
		t.Fatal(err)
	}
	var status string
	err = env.Pool.QueryRow(t.Context(), `SELECT status FROM invoice`).Scan(&status)
	if err != nil || status != "reminded" {
		t.Errorf("status %q, %v", status, err)
	}
}
