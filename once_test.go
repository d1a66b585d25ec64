package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
)

// payment is a request, and receipt its result.
type (
	payment struct {
		To     string `json:"to"`
		Amount int    `json:"amount"`
	}
	receipt struct {
		Balance string
		At      time.Time
	}
)

// pay adds to the value of row 1 and counts its calls.
func pay(calls *int) fencepost.OnceFunc[receipt] {
	return func(ctx context.Context, tx pgx.Tx) (r receipt, err error) {
		*calls++
		err = tx.QueryRow(ctx, `UPDATE app.invoice SET value = (value::int + 10)::text WHERE id = '1'
			RETURNING value, clock_timestamp()`).Scan(&r.Balance, &r.At)
		return r, err
	}
}

var toAnn = payment{To: "Ann", Amount: 10}

// C06, I8: a retry returns the first result without running the work: under the same lease, a later one, in another
// process, and under the stale one.
func TestInvariant8_OnceReturnsTheFirstResult(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	calls := 0
	first := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	want, err := fencepost.Once(t.Context(), first, "k", toAnn, pay(&calls))
	if err != nil || want.Recorded || want.Value.Balance != "10" {
		t.Fatalf("%+v, %v", want, err)
	}
	b.forget(t, "invoice-1")
	later := acquire(t, b.another(t), "invoice-1", nil)
	ended := b.acquire(t, "invoice-2", nil)
	if err := ended.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*fencepost.Lease{"later": later, "overtaken": first} {
		got, err := fencepost.Once(t.Context(), l, "k", toAnn, pay(&calls))
		if err != nil || !got.Recorded || got.Value != want.Value {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want.Value)
		}
	}
	if err := later.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := fencepost.Once(t.Context(), later, "k", toAnn, pay(&calls)); err != nil || got.Value != want.Value {
		t.Errorf("released: %+v, %v", got, err)
	}
	// Work that is not recorded is not done under a lease that is over or was overtaken.
	_, err = fencepost.Once(t.Context(), ended, "other", toAnn, pay(&calls))
	wantErr(t, err, fencepost.ErrLost)
	_, err = fencepost.Once(t.Context(), first, "other", toAnn, pay(&calls))
	wantErr(t, err, fencepost.ErrStale)
	if r := b.read(t, "1"); calls != 1 || r.Value != "10" {
		t.Errorf("%d calls, and the row is %+v", calls, r)
	}
}

// I8: the reply to COMMIT is lost and cannot be settled, and the caller retries: the amount moves once. Without the
// ledger (the control) it moves twice.
func TestInvariant8_ARetryMovesTheAmountOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ledger bool
		want   string
	}{"ledger": {true, "10"}, "control": {false, "20"}} {
		b := setup(t, fencepost.Options{})
		proxied, proxy := behindProxy(t, b)
		l := acquire(t, proxied, "invoice-1", nil)
		calls := 0
		try := func() error {
			work := func(ctx context.Context, tx pgx.Tx) (receipt, error) {
				beginAnotherIncarnation(t, b.pool)
				return pay(&calls)(ctx, tx)
			}
			if c.ledger {
				_, err := fencepost.Once(t.Context(), l, "k", toAnn, work)
				return err
			}
			return proxied.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				_, err := work(ctx, tx)
				return err
			}, l)
		}
		dropped := proxy.DropNextReply(faults.Commit())
		err := try()
		<-dropped
		if c.ledger != (err == nil) || err != nil && !errors.Is(err, fencepost.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err) // the ledger settles what the mark cannot
		}
		if err := try(); err != nil {
			t.Errorf("%s, again: %v", name, err)
		}
		if r := b.read(t, "1"); r.Value != c.want {
			t.Errorf("%s: the row is %+v", name, r)
		}
	}
}

// I8: a crash before the flush undoes work and entry together: the retry does it, once.
func TestInvariant8_OnceAcrossACrash(t *testing.T) {
	t.Parallel()
	o := setupOwn(t, forgetful...)
	l := acquire(t, o.gated, "invoice-1", nil)
	once := func(fn fencepost.TxFunc) error {
		_, err := fencepost.Once(t.Context(), l, "k", toAnn, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "moved", fn(ctx, tx)
		})
		return err
	}
	o.crashBeforeFlush(t, once)
	for range 2 {
		if err := once(move(make(chan string, 1))); err != nil {
			t.Fatal(err)
		}
	}
	if got := o.autocommit(t, amount); got != "10" {
		t.Errorf("the amount is %s", got)
	}
}

// C06: a key belongs to one request, whatever the order of its fields, and to one resource.
func TestCase06_AKeyIsNotReused(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l, other := b.acquire(t, "invoice-1", nil), b.acquire(t, "invoice-2", nil)
	calls := 0
	if _, err := fencepost.Once(t.Context(), l, "k", toAnn, pay(&calls)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lease   *fencepost.Lease
		request any
	}{
		"amount": {l, payment{To: "Ann", Amount: 11}}, "none": {l, nil},
		"more":     {l, map[string]any{"to": "Ann", "amount": 10, "x": nil}},
		"resource": {other, toAnn},
	} {
		_, err := fencepost.Once(t.Context(), c.lease, "k", c.request, pay(&calls))
		if wantErr(
			t,
			err,
			fencepost.ErrKeyReused,
		); errors.Is(err, fencepost.ErrInvalid) ||
			errors.Is(err, fencepost.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, same := range []any{
		map[string]any{"to": "Ann", "amount": 10}, json.RawMessage(`{ "amount":10, "to":"\u0041nn" }`),
	} {
		if got, err := fencepost.Once(t.Context(), l, "k", same, pay(&calls)); err != nil || !got.Recorded {
			t.Errorf("%v: %+v, %v", same, got, err)
		}
	}
	if r := b.read(t, "1"); calls != 1 || r.Value != "10" {
		t.Errorf("%d calls, and the row is %+v", calls, r)
	}
}

// I8: of several goroutines that share a lease and use the same key at once, one does the work.
func TestInvariant8_OnceAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := map[receipt]int{}
	for range 8 {
		wg.Go(func() {
			calls := 0
			got, err := fencepost.Once(t.Context(), l, "k", toAnn, pay(&calls))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			done[got.Value]++
		})
	}
	wg.Wait()
	if r := b.read(t, "1"); r.Value != "10" || len(done) != 1 {
		t.Errorf("results %v, and the row is %+v", done, r)
	}
}

// Work that fails, or whose result cannot be recorded, leaves no entry, so it can be tried again.
func TestOnceRecordsNothingOfWorkThatFailed(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	why := errors.New("the work failed")
	fail := func(ctx context.Context, tx pgx.Tx) (string, error) {
		return "", errors.Join(setValue("x")(ctx, tx), why)
	}
	_, err := fencepost.Once(t.Context(), l, "k", toAnn, fail)
	wantErr(t, err, why)
	_, err = fencepost.Once(t.Context(), l, "k", toAnn, func(ctx context.Context, tx pgx.Tx) (string, error) {
		return strings.Repeat("x", 64<<10), setValue("x")(ctx, tx)
	})
	wantErr(t, err, fencepost.ErrInvalid)
	_, err = fencepost.Once(t.Context(), l, "k", toAnn, func(ctx context.Context, tx pgx.Tx) (any, error) {
		return func() {}, setValue("x")(ctx, tx)
	})
	wantErr(t, err, fencepost.ErrInvalid)
	calls := 0
	if _, err := fencepost.Once(t.Context(), l, "k", toAnn, pay(&calls)); err != nil || b.read(t, "1").Value != "10" {
		t.Errorf("again: %v", err)
	}
	for name, err := range map[string]error{
		"no key":      second(fencepost.Once(t.Context(), l, "", toAnn, pay(&calls))),
		"long key":    second(fencepost.Once(t.Context(), l, strings.Repeat("k", 513), toAnn, pay(&calls))),
		"U+0000":      second(fencepost.Once(t.Context(), l, "\x00", toAnn, pay(&calls))),
		"no lease":    second(fencepost.Once(t.Context(), nil, "k", toAnn, pay(&calls))),
		"no function": second(fencepost.Once[int](t.Context(), l, "k", toAnn, nil)),
		"request":     second(fencepost.Once(t.Context(), l, "k", func() {}, pay(&calls))),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// PostgreSQL 13 and 14 read no number above 2^31 - 1 in an interval, so even a very long age is written in units that
// stay below that.
func TestCase40_KeysArePurgedByAnyAge(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	done := 0
	for _, key := range []string{"kept", "old"} {
		if _, err := fencepost.Once(t.Context(), l, key, toAnn, pay(&done)); err != nil {
			t.Fatal(err)
		}
	}
	const age = 25*time.Hour + 59*time.Minute + 59*time.Second + 999_999*time.Microsecond
	exec(t, b.pool, `UPDATE fencepost.ledger SET done_at = now() - CASE key
		WHEN 'kept' THEN interval '25:58:00' ELSE interval '26:00:00' END`)
	for _, step := range []struct {
		age  time.Duration
		want int64
	}{{math.MaxInt64, 0}, {40 * 24 * time.Hour, 0}, {26*time.Hour + time.Minute, 0}, {age, 1}} {
		if n, err := b.store.PurgeOnce(t.Context(), step.age); err != nil || n != step.want {
			t.Errorf("older than %v: %d purged, %v; want %d", step.age, n, err, step.want)
		}
	}
}

// A key is kept for OnceWindow, by the database's clock. Older keys are deleted, in the store's namespace alone.
func TestPurgeOnceKeepsTheWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	done := 0
	for _, key := range []string{"young", "old", "older"} {
		if _, err := fencepost.Once(t.Context(), l, key, toAnn, pay(&done)); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, b.pool, `UPDATE fencepost.ledger SET done_at = now() - CASE key
		WHEN 'young' THEN interval '23 h 59 min' WHEN 'old' THEN interval '24 h 1 min' ELSE interval '48 h 1 min' END`)
	exec(
		t,
		b.pool,
		`INSERT INTO fencepost.ledger SELECT 'another', key, resource, request, result, done_at FROM fencepost.ledger`,
	)
	_, err := b.store.PurgeOnce(t.Context(), fencepost.OnceWindow-time.Nanosecond)
	wantErr(t, err, fencepost.ErrInvalid)
	for _, step := range []struct {
		age  time.Duration
		want int64
	}{{48 * time.Hour, 1}, {fencepost.OnceWindow, 1}, {fencepost.OnceWindow, 0}} {
		if n, err := b.store.PurgeOnce(t.Context(), step.age); err != nil || n != step.want {
			t.Errorf("older than %v: %d purged, %v; want %d", step.age, n, err, step.want)
		}
	}
	for key, want := range map[string]bool{"young": true, "old": false} {
		got, err := fencepost.Once(t.Context(), l, key, toAnn, pay(&done))
		if err != nil || got.Recorded != want {
			t.Errorf("%s: recorded %v, %v", key, got.Recorded, err)
		}
	}
	var others int
	if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.ledger WHERE namespace = 'another'`).
		Scan(&others); err != nil ||
		others != 3 {
		t.Errorf("%d keys of another namespace are left, %v", others, err)
	}
	// The function itself refuses a shorter age, for every caller.
	_, err = b.pool.Exec(t.Context(), `SELECT fencepost.once_purge('another', interval '23 hours', 10)`)
	if err == nil || !strings.Contains(err.Error(), "ZF002") {
		t.Errorf("purging within the window: %v", err)
	}
}
