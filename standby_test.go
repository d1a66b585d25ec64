package fencepost_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// setupPair is a bundle on the primary of a pair. The standby has everything that the bundle begins with.
func setupPair(t *testing.T) (*bundle, *services.PostgresPair) {
	t.Helper()
	pair := testenv.PostgresPair(t)
	migrate(t, pair.Primary.URL())
	b := setupOn(
		t,
		testenv.PoolOn(t, pair.Primary.URL()),
		testenv.Redis(t),
		fencepost.Options{Namespace: strings.ToLower(t.Name())},
	)
	exec(t, b.pool, `SELECT fencepost.begin_incarnation()`)
	lsn := value[string](t, b.pool, `SELECT pg_current_wal_lsn()::text`)
	until(t, testenv.PoolOn(t, pair.Standby.URL()), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn)
	return b, pair
}

// switching is a pool of four connections whose address leads to one server after another. Existing connections stay.
type switching struct {
	*pgxpool.Pool
	address *testenv.Address
}

func newSwitching(t *testing.T, first string) *switching {
	t.Helper()
	config, err := pgxpool.ParseConfig(first)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	s := &switching{address: testenv.NewAddress(t, config.ConnConfig, first)}
	if s.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *switching) lead(t *testing.T, server string) {
	t.Helper()
	s.address.Lead(t, server)
}

// fill opens as many connections as the pool may have.
func (s *switching) fill(t *testing.T) {
	t.Helper()
	var conns []*pgxpool.Conn
	for range s.Config().MaxConns {
		conn, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// C37: an address leads to a standby and then to the primary. Whichever method is called, at most as many calls fail as
// the pool has connections to the standby. The control is a plain statement, after which the pool keeps the connection.
func TestCase37_APoolLeavesAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL())
	c := newCaller(t, b, pool.Pool)
	stuck := func() {
		pool.lead(t, pair.Standby.URL())
		pool.Reset()
		pool.fill(t)
		pool.lead(t, pair.Primary.URL())
	}
	stuck()
	for range 25 {
		if _, err := pool.Exec(t.Context(), `UPDATE app.invoice SET value = 'x'`); err == nil {
			t.Fatal("the control was carried out: the pool is not stuck")
		}
	}
	for what, call := range c.every(t) {
		stuck()
		failed, last := 0, -1
		for i := range 25 {
			if err := call(); err != nil {
				failed, last = failed+1, i
				if !errors.Is(err, fencepost.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if failed > 4 || last > 4 {
			t.Errorf("%s: %d of 25 failed, the last was number %d", what, failed, last)
		}
	}
}

// C37 over database/sql, whose pools keep such connections as well.
func TestCase37_APoolOfDatabaseSQLLeavesAStandby(t *testing.T) {
	t.Parallel()
	_, pair := setupPair(t)
	config, err := pgx.ParseConfig(pair.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	address := testenv.NewAddress(t, config, pair.Primary.URL())
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	const most = 4
	db.SetMaxOpenConns(most)
	stuck := func() {
		db.SetMaxIdleConns(-1) // closes them
		db.SetMaxIdleConns(most)
		address.Lead(t, pair.Standby.URL())
		var all []*sql.Conn
		for range most {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
		}
		for _, conn := range all {
			_ = conn.Close() // goes back to the pool
		}
		address.Lead(t, pair.Primary.URL())
	}
	stuck()
	for range 25 {
		if _, err := db.ExecContext(t.Context(), `UPDATE app.invoice SET value = 'x'`); err == nil {
			t.Fatal("the control was carried out: the pool is not stuck")
		}
	}
	claim := fence.Claim{Resource: "r", Nonce: token.NewNonce()}
	invoice := fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}}
	for what, call := range map[string]func(tok fencepost.Token) error{
		"update": func(tok fencepost.Token) error {
			return fence.UpdateSQL(t.Context(), db, invoice, tok, fence.Key{"1"}, fence.Set{"value": "x"})
		},
		"claim": func(tok fencepost.Token) error {
			claim.Token = tok
			return fence.RaiseSQL(t.Context(), db, claim, nil)
		},
	} {
		stuck()
		failed := 0
		for tok := fencepost.Token(1); tok <= 25; tok++ {
			if err := call(tok); err != nil {
				failed++
				wantErr(t, err, fencepost.ErrUnavailable)
			}
		}
		if failed == 0 || failed > most {
			t.Errorf("%s: %d of 25 failed", what, failed)
		}
	}
}

// C32: a read that a standby answers is refused, because its data may be old, and a row that it lacks may exist. The
// control is the plain read, which gets the old value.
func TestCase32_AStandbysAnswerIsRefused(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL())
	c := newCaller(t, b, pool.Pool)
	standby := testenv.PoolOn(t, pair.Standby.URL())
	exec(t, standby, `SELECT pg_wal_replay_pause()`)
	exec(t, b.pool, `UPDATE app.invoice SET value = 'newer'`)
	exec(t, b.pool, `INSERT INTO app.invoice (id) VALUES ('late')`)
	late := acquire(t, c.store, "invoice-late", nil)
	if got := value[string](t, standby, `SELECT value FROM app.invoice WHERE id = '1'`); got != "0" {
		t.Errorf("the control read %q: the standby does not lag", got)
	}
	for what, call := range map[string]func() error{
		"get":     func() error { return second(c.table.Get(t.Context(), c.lease, fencepost.Key{"1"})) },
		"missing": func() error { return second(c.table.Get(t.Context(), late, fencepost.Key{"late"})) },
		"table":   func() error { return second(fencepost.NewTable[Invoice](t.Context(), c.store, invoiceSpec())) },
		"adopt":   func() error { return second(c.table.Adopt(t.Context())) },
		"verify":  func() error { return second(fence.Verify(t.Context(), pool)) },
		"once":    c.writes(t.Context(), t)["once"],
	} {
		pool.lead(t, pair.Standby.URL())
		pool.Reset()
		err := call()
		if !errors.Is(err, fencepost.ErrUnavailable) || errors.Is(err, fencepost.ErrNotFound) ||
			!strings.Contains(err.Error(), "a standby answered") {
			t.Errorf("%s: %v", what, err)
		}
	}
	pool.lead(t, pair.Primary.URL())
	pool.Reset()
	if row, err := c.table.Get(t.Context(), late, fencepost.Key{"late"}); err != nil || row.ID != "late" {
		t.Errorf("on the primary: %+v, %v", row, err)
	}
}
