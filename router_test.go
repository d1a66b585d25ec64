package fencepost_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// router sends each SELECT that locks no row, and stands in no transaction, to a standby, and everything else to
// the primary. It knows nothing of functions: a SELECT that calls one that writes goes to the standby too. It takes
// statements without names.
type router struct {
	pair     *services.PostgresPair
	listener net.Listener
	balanced atomic.Int64 // how many went to the standby
	serving  sync.WaitGroup
}

func newRouter(t *testing.T, pair *services.PostgresPair) *router {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &router{pair: pair, listener: listener}
	ctx, cancel := context.WithCancel(context.Background())
	r.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			stop := context.AfterFunc(ctx, func() { _ = client.Close() })
			r.serving.Go(func() {
				defer stop()
				if err := r.serve(ctx, client); err != nil && ctx.Err() == nil {
					t.Errorf("the router: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		r.serving.Wait()
	})
	return r
}

// url is the address of the primary's database through the router.
func (r *router) url(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(r.pair.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = r.listener.Addr().String()
	return u.String()
}

// serve serves one client until it leaves. Every client may connect.
func (r *router) serve(ctx context.Context, client net.Conn) error {
	defer func() { _ = client.Close() }()
	backend := pgproto3.NewBackend(client, client)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return err
	}
	primary, err := hijack(ctx, r.pair.Primary.URL())
	if err != nil {
		return err
	}
	defer func() { _ = primary.Conn.Close() }()
	standby, err := hijack(ctx, r.pair.Standby.URL())
	if err != nil {
		return err
	}
	defer func() { _ = standby.Conn.Close() }()
	welcome(backend, primary)
	for status := byte('I'); ; {
		if err := backend.Flush(); err != nil {
			return err
		}
		texts, messages, err := nextCycle(backend)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the client has left
		}
		if err != nil {
			return err
		}
		server := primary
		if status == 'I' && onlyReads(texts) {
			r.balanced.Add(1)
			server = standby
		}
		if _, err := server.Conn.Write(messages); err != nil {
			return err
		}
		if status, err = relay(server, backend); err != nil {
			return err
		}
	}
}

func hijack(ctx context.Context, address string) (*pgconn.HijackedConn, error) {
	conn, err := pgconn.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return conn.Hijack()
}

func welcome(client *pgproto3.Backend, server *pgconn.HijackedConn) {
	client.Send(&pgproto3.AuthenticationOk{})
	for name, value := range server.ParameterStatuses {
		client.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	client.Send(&pgproto3.BackendKeyData{ProcessID: server.PID, SecretKey: server.SecretKey})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// nextCycle reads what the client sends until it waits for an answer.
func nextCycle(client *pgproto3.Backend) (texts []string, messages []byte, err error) {
	for {
		message, err := client.Receive()
		if err != nil {
			return nil, nil, err
		}
		if messages, err = message.Encode(messages); err != nil {
			return nil, nil, err
		}
		switch m := message.(type) {
		case *pgproto3.Terminate:
			return nil, nil, io.EOF
		case *pgproto3.Parse:
			texts = append(texts, m.Query)
		case *pgproto3.Query:
			return append(texts, m.String), messages, nil
		case *pgproto3.Sync:
			return texts, messages, nil
		}
	}
}

func onlyReads(texts []string) bool {
	for _, text := range texts {
		text = strings.ToUpper(strings.TrimSpace(text))
		if !strings.HasPrefix(text, "SELECT") || strings.Contains(text, " FOR UPDATE") ||
			strings.Contains(text, " FOR SHARE") {
			return false
		}
	}
	return len(texts) > 0
}

// relay passes on the answer, and returns the state of the transaction after it.
func relay(server *pgconn.HijackedConn, client *pgproto3.Backend) (status byte, err error) {
	for {
		message, err := server.Frontend.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(message)
		if ready, ok := message.(*pgproto3.ReadyForQuery); ok {
			return ready.TxStatus, nil
		}
	}
}

// C32: behind a router that sends plain reads to a lagging standby, a read of the library is refused, so nothing is
// acknowledged that rests on it; what reads on the primary, as Modify does, loses nothing. The control is the same
// read-modify-write without the statement's look at who answers: each update is acknowledged, and all but one are
// lost.
func TestCase32_NoUpdateIsLostBehindARouterOfPlainReads(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL()+"&default_query_exec_mode=exec")
	s, err := fencepost.New(pool.Pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, s) // a program behind such a router alone does not start
	route := newRouter(t, pair)
	pool.lead(t, route.url(t))
	pool.Reset()
	exec(t, testenv.PoolOn(t, pair.Standby.URL()), `SELECT pg_wal_replay_pause()`)
	const times = 100
	modify := func(ctx context.Context, l *fencepost.Lease) error {
		return invoices.Modify(
			ctx,
			l,
			fencepost.Key{"1"},
			func(row *Invoice) error { row.Value = oneMore(row.Value); return nil },
		)
	}
	getAndUpdate := func(ctx context.Context, l *fencepost.Lease) error {
		row, err := invoices.Get(ctx, l, fencepost.Key{"1"})
		if err != nil {
			return err
		}
		return invoices.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": oneMore(row.Value)})
	}
	unaware := func(ctx context.Context, l *fencepost.Lease) error {
		var value string
		if err := pool.QueryRow(ctx, withoutTheLook(t), "1").Scan(&value); err != nil {
			return err
		}
		return invoices.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": oneMore(value)})
	}
	for _, c := range []struct {
		what         string
		work         func(context.Context, *fencepost.Lease) error
		acknowledged int
		value        string
	}{
		{"get, update", getAndUpdate, 0, "0"},
		{"modify", modify, times, "100"},
		{"the control", unaware, times, "1"},
	} {
		exec(t, b.pool, `UPDATE app.invoice SET value = '0' WHERE id = '1'`)
		before := route.balanced.Load()
		acknowledged := repeatUnderLeases(t, s, times, c.work)
		if got := b.read(t, "1").Value; got != c.value || acknowledged != c.acknowledged {
			t.Errorf("%s: %d acknowledged, value %s; want %d and %s", c.what, acknowledged, got, c.acknowledged, c.value)
		}
		if reads := route.balanced.Load() - before; (reads >= times) != (c.what != "modify") {
			t.Errorf("%s: the standby was asked %d times", c.what, reads)
		}
	}
}

// withoutTheLook is the statement by which Get reads, as it would be if it did not ask who answers.
func withoutTheLook(t *testing.T) string {
	t.Helper()
	invoice := fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}}
	sql, look, found := strings.Cut(pgrow.SelectSQL(pgtable.Table(invoice), []string{"value"}), " AND (SELECT CASE")
	if !found || !strings.Contains(look, "pg_is_in_recovery") {
		t.Fatalf("the statement does not ask who answers: %s", sql)
	}
	return sql
}

// repeatUnderLeases has four workers repeat the work, each time under another lease, and returns how often it was
// acknowledged. The only error allowed is the answer of a standby.
func repeatUnderLeases(
	t *testing.T,
	s *fencepost.Store,
	times int,
	work func(context.Context, *fencepost.Lease) error,
) int {
	t.Helper()
	const workers = 4
	var acknowledged atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range times / workers {
				l, err := s.Acquire(t.Context(), "invoice-1", nil)
				if err != nil {
					t.Error(err)
					return
				}
				switch err := work(t.Context(), l); {
				case err == nil:
					acknowledged.Add(1)
				case !errors.Is(err, fencepost.ErrUnavailable) || !strings.Contains(err.Error(), "a standby answered"):
					t.Error(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return int(acknowledged.Load())
}
