package fencepost_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// settings is what a transaction runs under.
type settings struct{ Isolation, ReadOnly, Idle, Unacknowledged string }

func readSettings(into *settings) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only'),
			current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout')`).
			Scan(&into.Isolation, &into.ReadOnly, &into.Idle, &into.Unacknowledged)
	}
}

// underDefaults returns a pool whose sessions have other defaults than PostgreSQL's, set by the database's owner.
func underDefaults(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	database := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
	exec(t, pool, `ALTER DATABASE `+database+` SET default_transaction_isolation = 'serializable'`)
	other := testenv.PoolOn(t, pool.Config().ConnString())
	if isolation := value[string](
		t,
		other,
		`SELECT current_setting('transaction_isolation')`,
	); isolation != "serializable" {
		t.Fatalf("the database's default is %s", isolation)
	}
	return other
}

// Each BEGIN of the library names the isolation level, so the database's default does not matter.
func TestTheDatabasesDefaultsDoNotMatter(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN NEW.value := current_setting('transaction_isolation'); RETURN NEW; END $$;
		CREATE TRIGGER note BEFORE UPDATE ON app.invoice FOR EACH ROW EXECUTE FUNCTION app.note()`)
	s, err := fencepost.New(underDefaults(t, b.pool), b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, s, "invoice-1", nil)
	var got settings
	if err := s.Tx(
		t.Context(),
		readSettings(&got),
		l,
	); err != nil || got.Isolation != "read committed" ||
		got.ReadOnly != "off" {
		t.Errorf("Tx runs under %+v, %v", got, err)
	}
	// One round trip, from BEGIN to COMMIT.
	if err := second(table(t, s).Upsert(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"})); err != nil {
		t.Error(err)
	}
	if r := b.read(t, "1"); r.Value != "read committed" {
		t.Errorf("Upsert runs under %s", r.Value)
	}
	if _, err := fencepost.Once(
		t.Context(),
		l,
		"k",
		nil,
		func(context.Context, pgx.Tx) (int, error) { return 1, nil },
	); err != nil {
		t.Error(err)
	}
	if _, err := s.PurgeOnce(t.Context(), fencepost.OnceWindow); err != nil {
		t.Error(err)
	}
}

func TestTxOptions(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{MaxIdle: 7 * time.Second})
	l := b.acquire(t, "invoice-1", nil)
	for _, c := range []struct {
		name string
		opts *fencepost.TxOptions
		want settings
	}{
		{"nil", nil, settings{"read committed", "off", "7s", "7000"}},
		{"zero", &fencepost.TxOptions{}, settings{"read committed", "off", "7s", "7000"}},
		{
			"repeatable read", &fencepost.TxOptions{Isolation: pgx.RepeatableRead},
			settings{"repeatable read", "off", "7s", "7000"},
		},
		{
			"serializable", &fencepost.TxOptions{Isolation: pgx.Serializable, ReadOnly: true},
			settings{"serializable", "on", "7s", "7000"},
		},
		{"idle", &fencepost.TxOptions{MaxIdle: 3 * time.Second}, settings{"read committed", "off", "3s", "3000"}},
	} {
		var got settings
		if err := b.store.TxWith(t.Context(), c.opts, readSettings(&got), l); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	for name, opts := range map[string]*fencepost.TxOptions{
		"isolation": {Isolation: pgx.ReadUncommitted}, "no isolation": {Isolation: "chaos"},
		"idle": {MaxIdle: -1}, "long idle": {MaxIdle: 25 * time.Hour},
	} {
		if err := b.store.TxWith(t.Context(), opts, setValue("x"), l); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What was set ends with the transaction.
	var left string
	if err := b.pool.QueryRow(t.Context(), `SELECT current_setting('idle_in_transaction_session_timeout')`).
		Scan(&left); err != nil ||
		left != "0" {
		t.Errorf("left behind: %s, %v", left, err)
	}
}

// A read-only transaction is guarded like any other, writes nothing, and makes claims wait.
func TestAReadOnlyTxIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	readOnly := &fencepost.TxOptions{ReadOnly: true}
	var server *pgconn.PgError
	err := b.store.TxWith(t.Context(), readOnly, setValue("x"), l)
	if !errors.As(err, &server) || server.Code != "25006" {
		t.Errorf("a write in a read-only transaction: %v", err)
	}
	err = b.store.TxWith(t.Context(), readOnly, func(context.Context, pgx.Tx) error {
		b.forget(t, "invoice-1")
		patience, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // another's: no holder's context
		defer cancel()
		_, err := b.another(t).Acquire(patience, "invoice-1", nil)
		wantErr(t, err, context.DeadlineExceeded) // the guard holds it up
		return nil
	}, l)
	if err != nil {
		t.Error(err)
	}
	second := acquire(t, b.another(t), "invoice-1", nil)
	var got settings
	wantStale(t, b.store.TxWith(t.Context(), readOnly, readSettings(&got), l), l.Token(), second.Token())
}

// trips counts how often a client begins to send after it has received.
type trips struct {
	net.Conn
	sending *atomic.Bool
	count   *atomic.Int64
}

func (c trips) Write(p []byte) (int, error) {
	if !c.sending.Swap(true) {
		c.count.Add(1)
	}
	return c.Conn.Write(p)
}

func (c trips) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sending.Store(false)
	}
	return n, err
}

// BEGIN, settings, mark and every guard travel together: a transaction that does nothing costs two round trips.
func TestATxBeginsInOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	var sending atomic.Bool
	var count atomic.Int64
	config := b.pool.Config()
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // a trip of its own
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return trips{conn, &sending, &count}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	leases := acquireAll(t, s, "invoice-1", "invoice-2", "invoice-3")
	for _, opts := range []*fencepost.TxOptions{nil, {Isolation: pgx.Serializable, ReadOnly: true}} {
		var before int64
		for range 2 { // the first prepares the statements, and begins the server's incarnation
			before = count.Load()
			if err := s.TxWith(t.Context(), opts, func(context.Context, pgx.Tx) error { return nil }, leases...); err != nil {
				t.Fatal(err)
			}
		}
		if n := count.Load() - before; n != 2 {
			t.Errorf("%+v: %d round trips", opts, n)
		}
	}
}
