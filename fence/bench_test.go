package fence_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// benchSetup is setup for benchmarks.
func benchSetup(b *testing.B) *pgxpool.Pool {
	b.Helper()
	pool := testenv.Pool(b)
	if _, err := pool.Exec(b.Context(), fencetest.CreateRows); err != nil {
		b.Fatal(err)
	}
	return pool
}

// BenchmarkPlainUpdate is the baseline of the others.
func BenchmarkPlainUpdate(b *testing.B) {
	pool := benchSetup(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pool.Exec(b.Context(), `UPDATE app.item SET value = $1 WHERE id = $2`, "v", 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	pool := benchSetup(b)
	b.ReportAllocs()
	for tok := token.Token(1); b.Loop(); tok++ {
		if err := fence.Update(b.Context(), pool, rows, tok, fence.Key{1}, fence.Set{"value": "v"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdateRefused(b *testing.B) {
	pool := benchSetup(b)
	if err := fence.Update(b.Context(), pool, rows, 2, fence.Key{1}, fence.Set{"value": "v"}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := fence.Update(b.Context(), pool, rows, 1, fence.Key{1}, fence.Set{"value": "v"}); err == nil {
			b.Fatal("a stale token was accepted")
		}
	}
}

// withConn hands a benchmark a connection and a claim that has been made.
func withConn(b *testing.B, fn func(conn *pgx.Conn, c fence.Claim)) {
	b.Helper()
	conn, err := benchSetup(b).Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	c := fencetest.ClaimOf("r", 1)
	if err := fence.Raise(b.Context(), conn.Conn(), c, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	fn(conn.Conn(), c)
}

func BenchmarkUpdateClaimed(b *testing.B) {
	withConn(b, func(conn *pgx.Conn, c fence.Claim) {
		for b.Loop() {
			if err := fencetest.UpdateOn(
				b.Context(),
				conn,
				c,
				fencetest.Rows,
				fence.Key{1},
				fence.Set{"value": "v"},
			); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGuard measures the guard alone, once per transaction, including BEGIN and ROLLBACK.
func BenchmarkGuard(b *testing.B) {
	withConn(b, func(conn *pgx.Conn, c fence.Claim) {
		for b.Loop() {
			inTx(b, conn, func(tx pgx.Tx) error { return fence.Enter(b.Context(), tx, c) })
		}
	})
}

// BenchmarkNoGuard is BenchmarkGuard with the cheapest possible statement in place of the guard.
func BenchmarkNoGuard(b *testing.B) {
	withConn(b, func(conn *pgx.Conn, _ fence.Claim) {
		for b.Loop() {
			inTx(b, conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), `SELECT`)
				return err
			})
		}
	})
}

func inTx(b *testing.B, conn *pgx.Conn, fn func(tx pgx.Tx) error) {
	b.Helper()
	tx, err := conn.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := fn(tx); err != nil {
		b.Fatal(err)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRaise(b *testing.B) {
	withConn(b, func(conn *pgx.Conn, c fence.Claim) {
		for b.Loop() {
			c.Token++
			if err := fence.Raise(b.Context(), conn, c, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestRoundTrips: an applied write costs one round trip, as a plain UPDATE does, and a refused one two.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	pool, trips := testenv.CountedPool(t, fencetest.Setup(t))
	update := func(tok token.Token) error {
		return fence.Update(t.Context(), pool, rows, tok, fence.Key{1}, fence.Set{"value": "v"})
	}
	c := fencetest.ClaimOf("r", 1)
	onConn := func(fn func(conn *pgx.Conn) error) error {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			return err
		}
		defer conn.Release()
		return fn(conn.Conn())
	}
	claimed := func(conn *pgx.Conn) error {
		return fencetest.UpdateOn(t.Context(), conn, c, fencetest.Rows, fence.Key{2}, fence.Set{"value": "v"})
	}
	raise := func(conn *pgx.Conn) error {
		c.Token++
		return fence.Raise(t.Context(), conn, c, nil)
	}
	plain := func() error {
		_, err := pool.Exec(t.Context(), `UPDATE app.item SET value = $1 WHERE id = $2`, "v", 1)
		return err
	}
	warm := []error{plain(), update(10), onConn(raise), onConn(claimed)} // prepares the statements
	fencetest.WantStale(t, update(9), 9, 10)
	for _, err := range warm {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		want int64
		do   func() error
	}{
		{"plain UPDATE", 1, plain},
		{"Update, applied", 1, func() error { return update(11) }},
		{"Raise", 1, func() error { return onConn(raise) }},
		{"UpdateClaimed", 1, func() error { return onConn(claimed) }},
		{"Update, refused", 2, func() error {
			fencetest.WantStale(t, update(9), 9, 11)
			return nil
		}},
	} {
		before := trips.Load()
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := trips.Load() - before; got != step.want {
			t.Errorf("%s: %d round trips, want %d", step.name, got, step.want)
		}
	}
}
