package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// counts gathers the events of healing.
type counts struct {
	mu                   sync.Mutex
	reseeds, regressions int
}

func (c *counts) events() fencepost.Events {
	return fencepost.Events{
		Reseed:     func(context.Context, string, fencepost.Token, fencepost.Token) { c.add(1, 0) },
		Regression: func(context.Context, string, fencepost.Token, fencepost.Token) { c.add(0, 1) },
	}
}

func (c *counts) add(reseeds, regressions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reseeds += reseeds
	c.regressions += regressions
}

func (c *counts) want(t *testing.T, reseeds, regressions int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reseeds != reseeds || c.regressions != regressions {
		t.Errorf("%d reseeds and %d regressions were counted, want %d and %d", c.reseeds, c.regressions, reseeds, regressions)
	}
}

// setupAt100 brings resource and row to token 100, each through the library.
func setupAt100(t *testing.T, b *bundle) {
	t.Helper()
	if err := b.rdb.Set(t.Context(), b.counterKey("invoice-1"), "99", 0).Err(); err != nil {
		t.Fatal(err)
	}
	l := b.acquire(t, "invoice-1", nil)
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "at 100"}); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "1"); r.LastFencingToken != 100 {
		t.Fatalf("the row is %+v", r)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// writesAbove100 acquires, at once and without a rival to wait for, and writes.
func writesAbove100(t *testing.T, b *bundle) *fencepost.Lease {
	t.Helper()
	l, err := b.store.TryAcquire(t.Context(), "invoice-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "after"}); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "1"); l.Token() <= 100 || r.LastFencingToken != l.Token() || r.Value != "after" {
		t.Errorf("token %d, row %+v", l.Token(), r)
	}
	return l
}

// levels collects the levels of the log records about token counters.
type levels struct {
	slog.Handler
	mu  sync.Mutex
	met []slog.Level
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }

func (l *levels) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(r.Message, "token counter") {
		l.met = append(l.met, r.Level)
	}
	return nil
}

func (l *levels) want(t *testing.T, want ...slog.Level) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.met, want) {
		t.Errorf("logged at %v, want %v", l.met, want)
	}
}

func TestCase04a_TheCounterIsDeleted(t *testing.T) {
	t.Parallel()
	var c counts
	var log levels
	b := setup(t, fencepost.Options{Events: c.events(), Logger: slog.New(&log)})
	setupAt100(t, b)
	if err := b.rdb.Del(t.Context(), b.counterKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	writesAbove100(t, b)
	c.want(t, 1, 0)
	log.want(t, slog.LevelInfo) // expected, and harmless
}

func TestCase04b_FlushAllWithAHolderAtWork(t *testing.T) {
	t.Parallel()
	var c counts
	server := testenv.OwnRedis(t)
	b := setupOn(t, testenv.Pool(t), testenv.RedisOn(t, server.URL()), fencepost.Options{Events: c.events()})
	setupAt100(t, b)
	old := b.acquire(t, "invoice-1", nil)
	if err := b.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	l := writesAbove100(t, b)
	c.want(t, 1, 0)
	wantStale(t, writeGuarded(t.Context(), b, old.Claim(), "overtaken"), old.Token(), l.Token())
}

// C04 c: after the restore of an older snapshot the counter is 60 again. A new token may lie far below the fence, and
// the lift counts as a regression.
func TestCase04c_AnOlderSnapshotIsRestored(t *testing.T) {
	t.Parallel()
	var c counts
	var log levels
	server := testenv.OwnRedis(t)
	o := fencepost.Options{Events: c.events(), Logger: slog.New(&log)}
	b := setupOn(t, testenv.Pool(t), testenv.RedisOn(t, server.URL()), o)
	ctx := t.Context()
	if err := errors.Join(b.rdb.Set(ctx, b.counterKey("invoice-1"), "60", 0).Err(), b.rdb.Save(ctx).Err()); err != nil {
		t.Fatal(err)
	}
	setupAt100(t, b)
	if err := errors.Join(server.Kill(ctx), server.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	if counter := b.rdb.Get(ctx, b.counterKey("invoice-1")).Val(); counter != "60" {
		t.Fatalf("the counter came back as %q", counter)
	}
	if l := writesAbove100(t, b); l.Token() != 101 {
		t.Errorf("token %d", l.Token())
	}
	c.want(t, 0, 1)
	log.want(t, slog.LevelWarn) // Redis is not what it was
	if counter := b.rdb.Get(ctx, b.counterKey("invoice-1")).Val(); counter != "101" {
		t.Errorf("the counter was left at %s", counter)
	}
}

// A counter that ran wild is lowered again, so that it does not use up the range.
func TestAWildCounterIsBroughtDown(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	setupAt100(t, b)
	if err := b.rdb.Set(t.Context(), b.counterKey("invoice-1"), "4611686018427387904", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if l := writesAbove100(t, b); l.Token() != 101 {
		t.Errorf("token %d", l.Token())
	}
	c.want(t, 0, 1)
}

// C04 d, I1, I2 and I4: Redis is killed and comes back empty again and again, under load. Each token is claimed once,
// tokens rise, the row's count misses no acknowledged step, and no holder that was not overtaken stays stale: the work
// goes on.
func TestInvariant4_Case04d_RedisIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.DialTimeout, o.MaxRetries = 200*time.Millisecond, -1
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	b := setupOn(t, testenv.Pool(t), rdb, fencepost.Options{TTL: 300 * time.Millisecond})
	recordClaims(t, b)
	const workers, target = 4, 60
	progress := make(chan struct{}, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var acknowledged [workers]int
	for i := range workers {
		wg.Go(func() { acknowledged[i] = countUp(ctx, t, b, target/workers, progress) })
	}
	for range 3 { // three crashes, each in the middle of the work
		for range target / 5 {
			select {
			case <-progress:
			case <-ctx.Done():
				t.Fatal("the work does not get on")
			}
		}
		if err := errors.Join(server.Kill(ctx), server.StartEmpty(ctx)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	total := 0
	for _, n := range acknowledged {
		total += n
	}
	if got := b.read(t, "1").Value; got != fmt.Sprint(total) {
		t.Errorf("the row counts %s, acknowledged were %d", got, total)
	}
	tokens := claimed(t, b)
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Fatalf("claimed tokens do not rise: %v", tokens)
		}
	}
	if len(tokens) < total {
		t.Errorf("%d claims for %d steps", len(tokens), total)
	}
}

// countUp adds one to the row's value a number of times, each time under another lease, and returns how many steps were
// acknowledged. It tries again after errors that a crash of Redis explains.
func countUp(ctx context.Context, t *testing.T, b *bundle, times int, progress chan<- struct{}) (acknowledged int) {
	t.Helper()
	for acknowledged < times {
		err := b.store.Do(ctx, "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, `SELECT value::int FROM app.invoice WHERE id = '1'`).Scan(&n); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '1'`, fmt.Sprint(n+1))
			return err
		})
		switch {
		case err == nil:
			acknowledged++
			progress <- struct{}{}
		case ctx.Err() != nil:
			t.Errorf("out of time: %v", err)
			return acknowledged
		case errors.Is(err, fencepost.ErrUnavailable), errors.Is(err, fencepost.ErrLost), errors.Is(err, fencepost.ErrStale):
			// what losing Redis may cost
		default:
			t.Errorf("PostgreSQL was there all the time, and yet: %v", err)
			return acknowledged
		}
	}
	return acknowledged
}

func recordClaims(t *testing.T, b *bundle) {
	t.Helper()
	exec(t, b.pool, `
		CREATE TABLE app.history (at bigint GENERATED ALWAYS AS IDENTITY, token bigint NOT NULL);
		CREATE FUNCTION app.record() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO app.history (token) VALUES (NEW.token); RETURN NULL; END $$;
		CREATE TRIGGER record AFTER INSERT OR UPDATE ON fencepost.fence FOR EACH ROW EXECUTE FUNCTION app.record()`)
}

func claimed(t *testing.T, b *bundle) []fencepost.Token {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT token FROM app.history ORDER BY at`)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := pgx.CollectRows(rows, pgx.RowTo[fencepost.Token])
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// I4's control: leases without a claim. Redis forgets, two holders have the same token, and the one that was overtaken
// overwrites the other's value, because the row's column cannot tell them apart.
func TestInvariant4Control_LeasesAloneRepeatTheirTokens(t *testing.T) {
	t.Parallel()
	rdb, prefix := testenv.Redis(t), testenv.Prefix(t)
	m, err := lease.NewManager(rdb, &lease.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[fencepost.Token]bool)
	repeated := false
	for range 2 {
		l, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Release(context.Background()) }()
		repeated = repeated || seen[l.Token()]
		seen[l.Token()] = true
		if err := rdb.Del(t.Context(), prefix+":{r}:lease", prefix+":{r}:token").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if !repeated {
		t.Error("the control repeated no token: I1 and I4 are shown by nothing")
	}
}

// C04 e under a Store: an idle counter expires, and the next grant continues above the fence.
func TestCase04e_AnIdleCounterExpiresUnderAStore(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{CounterIdle: 48 * time.Hour, Events: c.events()})
	setupAt100(t, b)
	key := b.counterKey("invoice-1")
	if left := b.rdb.PTTL(t.Context(), key).Val(); left > 48*time.Hour || left < 47*time.Hour {
		t.Errorf("the counter has %v left", left)
	}
	if err := b.rdb.PExpire(t.Context(), key, time.Millisecond).Err(); err != nil { // the time, shortened
		t.Fatal(err)
	}
	for b.rdb.Exists(t.Context(), key).Val() != 0 {
		continue
	}
	writesAbove100(t, b)
	c.want(t, 1, 0)
}

// If lifting does not help, the call ends after a bounded number of tries, and is not reported as stale.
func TestCase04_LiftingThatDoesNotHelpIsTokenRegressed(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE OR REPLACE FUNCTION fencepost.claim(resource text, token bigint, nonce uuid, label text DEFAULT '',
			OUT claimed boolean, OUT current bigint, OUT refusal jsonb)
		LANGUAGE sql AS $$ SELECT false, token + 5, NULL::jsonb $$`) // another is always faster
	_, err := b.store.TryAcquire(t.Context(), "invoice-1", nil)
	wantErr(t, err, fencepost.ErrTokenRegressed)
	if !b.free(t, "invoice-1") {
		t.Error("the lease without a claim was kept")
	}
}
