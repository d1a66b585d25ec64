package faults_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// connections returns a connection to the test's own database, and one through a proxy.
func connections(t *testing.T) (direct, through *pgx.Conn, proxy *faults.Proxy) {
	t.Helper()
	address := testenv.EmptyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy = faults.NewProxy(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	for url, to := range map[string]**pgx.Conn{address: &direct, proxy.URL(t, address): &through} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		*to = conn
	}
	if _, err := direct.Exec(t.Context(), `CREATE TABLE n (n int UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	return direct, through, proxy
}

// TestCommitted: however the client words its COMMIT, the reply is lost and the rows are there. Text that only mentions
// COMMIT passes, and so does a COMMIT that PostgreSQL answered with ROLLBACK.
func TestCommitted(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"COMMIT", "end", "INSERT INTO n VALUES (2); commit work"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			direct, through, proxy := connections(t)
			done := proxy.DropNextReplyThat(faults.Committed())
			exec := func(sql string) error {
				_, err := through.Exec(t.Context(), sql)
				return err
			}
			mustWork(t, exec(`SELECT 'COMMIT', E'COMMIT\n'`))
			mustWork(t, exec("BEGIN"))
			mustFail(t, exec("SELECT 1/0"))
			mustWork(t, exec("COMMIT"))
			mustWork(t, exec("BEGIN; INSERT INTO n VALUES (1)"))
			mustFail(t, exec(statement))
			happened(t, done)
			var rows int
			mustWork(t, direct.QueryRow(t.Context(), "SELECT count(*) FROM n").Scan(&rows))
			if rows == 0 {
				t.Error("the COMMIT was not carried out")
			}
		})
	}
}

// TestRedirect: connections end, and new ones lead elsewhere.
func TestRedirect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := testenv.OwnRedis(t)
	conn := b.through.(*redis.Client).Conn()
	defer func() { _ = conn.Close() }()
	mustWork(t, conn.Incr(t.Context(), b.key).Err())
	b.proxy.Redirect(other.Addr())
	mustFail(t, conn.Incr(t.Context(), b.key).Err())
	mustWork(t, b.incr(t))
	if n := b.count(t); n != 1 {
		t.Errorf("the first server counts %d, want 1", n)
	}
	n, err := testenv.RedisOn(t, other.URL()).Get(t.Context(), b.key).Int()
	if err != nil || n != 1 {
		t.Errorf("the other server counts %d (%v), want 1", n, err)
	}
}

// TestClose: nothing of a proxy is left, even if it hangs, and it may be closed again.
func TestClose(t *testing.T) {
	t.Parallel()
	u := testenv.RedisURL(t)
	o, err := redis.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faults.Start(o.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if proxy.Links() != 0 {
		t.Errorf("%d links before the first connection", proxy.Links())
	}
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	mustWork(t, c.Ping(t.Context()).Err())
	if proxy.Links() != 1 {
		t.Errorf("%d links with one connection", proxy.Links())
	}
	proxy.Hang()
	proxy.Close()
	mustFail(t, c.Ping(t.Context()).Err())
	if proxy.Links() != 0 {
		t.Errorf("%d links after the end", proxy.Links())
	}
}
