package advisory_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainWithExamples(m, 0) }

func locker(t *testing.T, pool *pgxpool.Pool, opts *advisory.Options) *advisory.Locker {
	t.Helper()
	l, err := advisory.NewLocker(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *advisory.Locker, resource string) *advisory.Lease {
	t.Helper()
	got, err := l.Acquire(t.Context(), resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

// locks counts the advisory locks with one number in the pool's database.
func locks(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func hostOf(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// steppedClock is a wall clock that steps when told.
type steppedClock struct{ by atomic.Int64 }

func (c *steppedClock) now() time.Time       { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *steppedClock) step(d time.Duration) { c.by.Add(int64(d)) }

// lacking returns a pool on the database of another, under a role; the privilege is revoked from all but the owner.
func lacking(t *testing.T, pool *pgxpool.Pool, right string) *pgxpool.Pool {
	t.Helper()
	role := "lacking_" + pool.Config().ConnConfig.Database
	for _, sql := range []string{`CREATE ROLE ` + role, `REVOKE ` + right + ` FROM PUBLIC`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), `DROP ROLE `+role) })
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+role)
		return err
	}
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	return limited
}
