package fencepost_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// statementTally counts statements: up for each one that was sent, down for each one that the tracer was notified of.
type statementTally struct {
	mu     sync.Mutex
	counts map[string]int
	sent   int
}

func (c *statementTally) add(sql string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.sent++
	}
	c.counts[sql] += n
}

// settled returns the statements whose counts are not zero, and how many statements were sent.
func (c *statementTally) settled() (off map[string]int, sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	off = map[string]int{}
	for sql, n := range c.counts {
		if n != 0 {
			off[sql] = n
		}
	}
	return off, c.sent
}

// traced is a tracer that any user could have.
type traced struct{ *statementTally }

func (c traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.add(d.SQL, -1)
	return ctx
}
func (traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (traced) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c traced) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.add(d.SQL, -1)
}
func (traced) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (c traced) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	c.add("copy", -1)
	return ctx
}
func (traced) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

// wiretap reads what a client sends, and counts each statement that it has the server execute.
type wiretap struct {
	net.Conn
	*statementTally
	rest    []byte
	started bool
	texts   map[string]string // of prepared statements
	bound   string
}

func (w *wiretap) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for w.message() {
	}
	return w.Conn.Write(p)
}

// message takes one complete message off the rest, if there is one. Messages before the first typed one have no type.
func (w *wiretap) message() bool {
	head := 5
	if !w.started {
		head = 4
	}
	if len(w.rest) < head {
		return false
	}
	n := head - 4 + int(binary.BigEndian.Uint32(w.rest[head-4:]))
	if len(w.rest) < n {
		return false
	}
	kind, body := w.rest[0], w.rest[head:n]
	if w.started {
		w.read(kind, body)
	} else {
		const sslRequest = 80877103
		w.started = binary.BigEndian.Uint32(body) != sslRequest
	}
	w.rest = w.rest[n:]
	return true
}

func (w *wiretap) read(kind byte, body []byte) {
	parts := bytes.SplitN(body, []byte{0}, 3)
	switch sql := string(parts[0]); {
	case kind == 'P':
		w.texts[string(parts[0])] = string(parts[1])
	case kind == 'B':
		w.bound = w.texts[string(parts[1])]
	case kind == 'E':
		w.add(w.bound, 1)
	case kind == 'Q' && strings.HasPrefix(sql, "copy "):
		w.add("copy", 1)
	case kind == 'Q' && sql != "-- ping": // the pool's own
		w.add(sql, 1)
	}
}

// tapped gives a pool whose statements are counted on the wire and by its tracer.
func tapped(t *testing.T, of *pgxpool.Pool) (*pgxpool.Pool, *statementTally) {
	t.Helper()
	c := &statementTally{counts: map[string]int{}}
	config := of.Config()
	config.ConnConfig.Tracer = traced{c}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &wiretap{Conn: conn, statementTally: c, texts: map[string]string{}}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, c
}

// The tracer of the caller's pool sees each statement that is sent, COMMIT included, and no other.
func TestCase54_TheTracerSeesEachStatement(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, statements := tapped(t, b.pool)
	for name, open := range map[string]func() (worker, error){
		"redis":       func() (worker, error) { return fencepost.New(pool, testenv.Redis(t), &b.opts) },
		"session":     func() (worker, error) { return fencepost.NewAdvisory(pool, &b.opts) },
		"transaction": func() (worker, error) { return fencepost.NewAdvisoryTx(pool, txOptions(&b.opts)) },
	} {
		store, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Do(t.Context(), "invoice-2", setValue("x")); err != nil {
			t.Error(err)
		}
		if store, ok := store.(*fencepost.Store); ok {
			useAll(t, store)
		}
		off, sent := statements.settled()
		if sent < 10 || len(off) != 0 {
			t.Errorf("%s: %d sent; sent more often than traced: %v", name, sent, off)
		}
		if name == "redis" {
			var commits int
			for sql := range statements.counts {
				if strings.HasSuffix(sql, "; COMMIT") {
					commits++
				}
			}
			if commits == 0 {
				t.Error("no guarded COMMIT among them")
			}
		}
	}
}

// useAll makes the calls that send statements of different kinds.
func useAll(t *testing.T, s *fencepost.Store) {
	t.Helper()
	ctx := t.Context()
	l := acquire(t, s, "invoice-1", nil)
	invoices := table(t, s)
	for _, call := range every(t, invoices, l, fencepost.Key{"1"}) {
		_ = call() // whatever comes of it, it was sent
	}
	_, err := invoices.Load(ctx, l, []string{"id", "value"}, pgx.CopyFromRows([][]any{{"1", "loaded"}}), nil)
	if err != nil {
		t.Error(err)
	}
	_, err = fencepost.Once(
		ctx,
		l,
		l.Token().String(),
		"request",
		func(context.Context, pgx.Tx) (int, error) { return 1, nil },
	)
	if err != nil {
		t.Error(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
}
