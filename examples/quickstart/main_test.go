package main

import (
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The program works on an empty database, and each time after that.
func TestAnEmptyDatabaseIsEnough(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	for range 2 {
		if err := run(t.Context(), url, testenv.RedisURL(t)); err != nil {
			t.Fatal(err)
		}
	}
	var status string
	err := testenv.PoolOn(t, url).QueryRow(t.Context(), `SELECT status FROM invoice`).Scan(&status)
	if err != nil || status != "paid" {
		t.Errorf("the invoice is %q, %v", status, err)
	}
}
