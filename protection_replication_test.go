package fencepost_test

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// replica is two databases of one server. Writes to app.item in the first are applied to the second, where the table is
// protected. A sequence there counts the rows that arrive, including those that are then refused.
type replica struct{ source, target *pgxpool.Pool }

func setupReplica(t *testing.T) replica {
	t.Helper()
	server := testenv.OwnPostgres(t, "-c", "wal_level=logical", "-c", "wal_retrieve_retry_interval=50ms")
	admin := testenv.PoolOn(t, server.URL())
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string) *pgxpool.Pool {
		exec(t, admin, `CREATE DATABASE `+name)
		u.Path = "/" + name
		pool := testenv.PoolOn(t, u.String())
		exec(t, pool, `CREATE SCHEMA app;
			CREATE TABLE app.item (id bigint PRIMARY KEY, value text, last_fencing_token bigint NOT NULL DEFAULT 0)`)
		return pool
	}
	r := replica{source: open("source")}
	// The server connects to itself by its own port. The port of a container is another one outside.
	self := *u
	self.Host = "127.0.0.1:" + value[string](t, r.source, `SELECT current_setting('port')`)
	from := self.String()
	r.target = open("target")
	migrate(t, u.String())
	exec(t, r.target, `CREATE SEQUENCE app.arrived;
		CREATE FUNCTION app.count() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM nextval('app.arrived'); RETURN NEW; END $$;
		CREATE TRIGGER counted BEFORE INSERT ON app.item FOR EACH ROW EXECUTE FUNCTION app.count();
		ALTER TABLE app.item ENABLE ALWAYS TRIGGER counted`)
	// A subscription to its own server would wait for itself if it created the slot.
	exec(t, r.source, `CREATE PUBLICATION items FOR TABLE app.item`)
	exec(t, r.source, `SELECT pg_create_logical_replication_slot('items', 'pgoutput')`)
	exec(t, r.target, `CREATE SUBSCRIPTION items CONNECTION '`+from+`' PUBLICATION items
		WITH (create_slot = false, slot_name = 'items', copy_data = false)`)
	return r
}

func migrate(t *testing.T, url string) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
}

// until waits for a query to say true.
func (r replica) until(t *testing.T, query string, args ...any) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		if err := r.target.QueryRow(t.Context(), query, args...).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s %v", query, args)
		}
	}
}

func (r replica) arrived(t *testing.T) int64 {
	t.Helper()
	return value[int64](t, r.target, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM app.arrived`)
}

// Logical replication passes a protection, unless the protection was made to apply to it as well. Then nothing is
// applied until that is changed.
func TestWhatReplicationAppliesPassesTheProtectionWhereItWasSaid(t *testing.T) {
	t.Parallel()
	r := setupReplica(t)
	const protect = `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}', replicated => $1)`
	const present = `SELECT EXISTS (SELECT FROM app.item WHERE id = $1)`
	exec(t, r.target, protect, false)
	exec(t, r.source, `INSERT INTO app.item VALUES (1, 'a', 7)`)
	r.until(t, present, 1)
	exec(t, r.source, `UPDATE app.item SET value = 'b', last_fencing_token = 9`)
	r.until(t, `SELECT EXISTS (SELECT FROM app.item WHERE value = 'b' AND last_fencing_token = 9)`)
	// Meanwhile the protection applies to everybody else.
	if _, err := r.target.Exec(t.Context(), `UPDATE app.item SET value = 'c'`); err == nil {
		t.Error("a write without a claim passed the protection")
	}

	exec(t, r.target, protect, true)
	before := r.arrived(t)
	exec(t, r.source, `INSERT INTO app.item VALUES (2, 'a', 7)`)
	// A row that was refused arrives again.
	r.until(t, `SELECT last_value >= $1 FROM app.arrived`, before+2)
	if value[bool](t, r.target, present, 2) {
		t.Error("a row without a claim was applied")
	}
	exec(t, r.target, protect, false)
	r.until(t, present, 2)
}
