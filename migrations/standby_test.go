package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// C37: an address leads to a standby and then to the primary. Calling Up or Down again is the remedy, with the same
// pool. The control is a plain statement, with which the pool stays where it is.
func TestCase37_AMigratorLeavesAStandby(t *testing.T) {
	t.Parallel()
	pair := testenv.PostgresPair(t)
	config, err := pgx.ParseConfig(pair.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	address := testenv.NewAddress(t, config, pair.Primary.URL())
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	for _, c := range []struct {
		what string
		call func() error
	}{
		{"up", func() error { _, err := migrations.Up(t.Context(), db, nil); return err }},
		{"down", func() error { _, err := migrations.Down(t.Context(), db, nil); return err }},
	} {
		address.Lead(t, pair.Standby.URL())
		db.SetMaxIdleConns(-1) // closes them
		db.SetMaxIdleConns(2)
		for range 3 {
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE control ()`); sqlState(err) != "25006" {
				t.Fatalf("%s: the control: %v", c.what, err)
			}
			address.Lead(t, pair.Primary.URL())
		}
		if err := c.call(); sqlState(err) != "25006" {
			t.Errorf("%s, on a standby: %v", c.what, err)
		}
		if err := c.call(); err != nil {
			t.Errorf("%s again: %v", c.what, err)
		}
		// The standby has it too before it is asked again.
		lsn := value[string](t, open(t, pair.Primary.URL()), `SELECT pg_current_wal_lsn()::text`)
		waitFor(t, open(t, pair.Standby.URL()), 1, `SELECT count(*) FROM pg_last_wal_replay_lsn() AS l WHERE l >= '`+lsn+`'`)
	}
}
