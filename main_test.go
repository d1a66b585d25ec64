package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainWithExamples(m, 3) }

const createInvoices = `
	CREATE SCHEMA app;
	CREATE TABLE app.invoice (
		id text PRIMARY KEY, value text NOT NULL DEFAULT '', updated_at timestamptz NOT NULL DEFAULT now(),
		last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0));
	INSERT INTO app.invoice (id, value) VALUES ('1', '0'), ('2', '0'), ('3', '0');`

// Invoice is a row of app.invoice.
type Invoice struct {
	ID               string
	Value            string
	UpdatedAt        time.Time
	LastFencingToken fencepost.Token
}

// bundle is what one test works with: a store on a database and a key space of its own.
type bundle struct {
	pool  *pgxpool.Pool
	rdb   redis.UniversalClient
	opts  fencepost.Options
	store *fencepost.Store
	table *fencepost.Table[Invoice]
}

func setup(t *testing.T, opts fencepost.Options) *bundle {
	t.Helper()
	return setupOn(t, testenv.Pool(t), testenv.Redis(t), opts)
}

func setupOn(t *testing.T, pool *pgxpool.Pool, rdb redis.UniversalClient, opts fencepost.Options) *bundle {
	t.Helper()
	b := &bundle{pool: pool, rdb: rdb, opts: opts}
	if b.opts.Namespace == "" {
		b.opts.Namespace = pool.Config().ConnConfig.Database // unique to the test
	}
	exec(t, pool, createInvoices)
	b.store = b.another(t)
	b.table = table(t, b.store)
	t.Cleanup(func() { b.dropKeys(t) })
	return b
}

// another is a further process of the same service, as far as the servers can tell.
func (b *bundle) another(t *testing.T) *fencepost.Store {
	t.Helper()
	s, err := fencepost.New(b.pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *bundle) dropKeys(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	keys := b.rdb.Scan(ctx, 0, b.prefix()+":*", 10_000).Iterator()
	for keys.Next(ctx) {
		if err := b.rdb.Del(ctx, keys.Val()).Err(); err != nil {
			t.Error(err)
		}
	}
}

func (b *bundle) prefix() string { return "fencepost:" + b.opts.Namespace }

func (b *bundle) leaseKey(resource string) string {
	return b.prefix() + ":{" + resource + "}:lease"
}

func (b *bundle) counterKey(resource string) string {
	return b.prefix() + ":{" + resource + "}:token"
}

func (b *bundle) acquire(t *testing.T, resource string, opts *fencepost.AcquireOptions) *fencepost.Lease {
	t.Helper()
	return acquire(t, b.store, resource, opts)
}

func acquire(t *testing.T, s *fencepost.Store, resource string, opts *fencepost.AcquireOptions) *fencepost.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), resource, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func table(t *testing.T, s *fencepost.Store) *fencepost.Table[Invoice] {
	t.Helper()
	invoices, err := fencepost.NewTable[Invoice](t.Context(), s, invoiceSpec())
	if err != nil {
		t.Fatal(err)
	}
	return invoices
}

func invoiceSpec() fencepost.TableSpec {
	return fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"},
		Resource: fencepost.PerRow("invoice-"),
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) read(t *testing.T, id string) Invoice {
	t.Helper()
	var r Invoice
	err := b.pool.QueryRow(t.Context(),
		`SELECT id, value, updated_at, last_fencing_token FROM app.invoice WHERE id = $1`, id).
		Scan(&r.ID, &r.Value, &r.UpdatedAt, &r.LastFencingToken)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bundle) free(t *testing.T, resource string) bool {
	t.Helper()
	n, err := b.rdb.Exists(t.Context(), b.leaseKey(resource)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 0
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

func wantStale(t *testing.T, err error, tok, current fencepost.Token) {
	t.Helper()
	var stale *fencepost.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fencepost.ErrStale) || stale.Token != tok || stale.Current != current {
		t.Errorf("got error %v, want token %d refused as stale at %d", err, tok, current)
	}
}
