package fencepost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

// C01: A's lease runs out while A is stopped, B takes over and writes, and A wakes and writes. The demo and its test
// use a real process and a real SIGSTOP; here A simply does not check its lease.
func TestCase01_APausedHolderWakes(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx := t.Context()
	a := b.acquireBriefly(t, "invoice-1")
	claim := a.Claim()
	second := b.acquire(t, "invoice-1", nil) // waits for A's lease to run out
	if second.Token() <= claim.Token {
		t.Fatalf("B has token %d, A %d", second.Token(), claim.Token)
	}
	if err := b.table.Update(ctx, second, fencepost.Key{"1"}, fencepost.Set{"value": "B"}); err != nil {
		t.Fatal(err)
	}
	before := b.read(t, "1")

	// (a) lease-bound: refused without a round trip.
	acquired := b.pool.Stat().AcquireCount()
	wantErr(t, b.table.Update(ctx, a, fencepost.Key{"1"}, fencepost.Set{"value": "A"}), fencepost.ErrLost)
	_, err := b.table.Get(ctx, a, fencepost.Key{"1"})
	wantErr(t, err, fencepost.ErrLost)
	wantErr(t, b.store.Tx(ctx, func(context.Context, pgx.Tx) error { t.Error("ran"); return nil }, a), fencepost.ErrLost)
	if n := b.pool.Stat().AcquireCount() - acquired; n != 0 {
		t.Errorf("%d connections were used for a lease that is over", n)
	}
	wantErr(t, context.Cause(a.Context()), fencepost.ErrLost)

	// (b) with the plain claim value, as code does that does not check its lease.
	err = fence.Update(ctx, b.pool, invoices, claim.Token, fencepost.Key{"1"}, fencepost.Set{"value": "A"})
	wantStale(t, err, claim.Token, second.Token())
	wantStale(t, writeGuarded(ctx, b, claim, "A"), claim.Token, second.Token())
	if after := b.read(t, "1"); after != before || after.Value != "B" || after.LastFencingToken != second.Token() {
		t.Errorf("the row went from %+v to %+v", before, after)
	}
	// The control: the same write without a fence.
	exec(t, b.pool, `UPDATE app.invoice SET value = 'A' WHERE id = '1'`)
	if b.read(t, "1").Value != "A" {
		t.Error("the control wrote nothing")
	}
}

var shortLived = &fencepost.AcquireOptions{TTL: 150 * time.Millisecond, NoRenewal: true}

// acquireBriefly acquires a lease that ends soon and is not renewed. If the claim takes a busy machine longer than
// that, another one is acquired.
func (b *bundle) acquireBriefly(t *testing.T, resource string) *fencepost.Lease {
	t.Helper()
	for {
		l, err := b.store.Acquire(t.Context(), resource, shortLived)
		if err == nil {
			return l
		}
		if !errors.Is(err, fencepost.ErrLost) {
			t.Fatal(err)
		}
	}
}

var invoices = fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}}

func writeGuarded(ctx context.Context, b *bundle, c fencepost.Claim, value string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := fence.Enter(ctx, tx, c); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '1'`, value)
		return err
	})
}

// C01 if A's deadline has not passed, because Redis lost the key: PostgreSQL refuses, not the clock.
func TestAHolderWhoseKeyWasLostIsStale(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []*fencepost.StaleError
	b := setup(t, fencepost.Options{Events: fencepost.Events{Stale: func(_ context.Context, s *fencepost.StaleError) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
	}}})
	a := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b.another(t), "invoice-1", nil)
	ran := false
	err := b.store.Tx(t.Context(), func(context.Context, pgx.Tx) error { ran = true; return nil }, a)
	wantStale(t, err, a.Token(), second.Token())
	err = b.table.Update(t.Context(), a, fencepost.Key{"1"}, fencepost.Set{"value": "A"})
	wantStale(t, err, a.Token(), second.Token())
	_, err = b.table.Stamp(t.Context(), a, fencepost.Key{"1"})
	wantStale(t, err, a.Token(), second.Token())
	if ran {
		t.Error("the work ran behind a guard that failed")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 { // the lease is over by PostgreSQL's word: nothing more is sent
		t.Errorf("%d events for one refusal", len(told))
	}
}

// C02 and I7: what B read after its claim stays true, because A's late write is refused even though B has not written
// yet. The control makes no claim at acquire, and A's acknowledged update is lost.
func TestInvariant7_Case02_NoUpdateIsLostBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	if lost := lateWrite(t, true); lost {
		t.Error("an acknowledged update was lost")
	}
	if lost := lateWrite(t, false); !lost {
		t.Error("the control lost nothing: the test shows nothing")
	}
}

// lateWrite reports whether A's write was acknowledged and is missing in the end. Without claims, both hold leases with
// tokens, and only the row's column is compared.
func lateWrite(t *testing.T, claims bool) (lost bool) {
	t.Helper()
	b := setup(t, fencepost.Options{})
	ctx, key := t.Context(), fencepost.Key{"1"}
	exec(t, b.pool, `UPDATE app.invoice SET value = '100', last_fencing_token = 40 WHERE id = '1'`)
	if err := b.rdb.Set(ctx, b.counterKey("invoice-1"), "40", 0).Err(); err != nil {
		t.Fatal(err)
	}
	write := func(l *fencepost.Lease, value string) error {
		if claims {
			return writeGuarded(ctx, b, l.Claim(), value)
		}
		return fence.Update(ctx, b.pool, invoices, l.Token(), key, fencepost.Set{"value": value})
	}
	a := b.acquireBriefly(t, "invoice-1")
	second := b.acquire(t, "invoice-1", nil)
	seen := b.read(t, "1").Value // B reads before A's late write
	acknowledged := write(a, "50") == nil
	if err := write(second, seen+"+10"); err != nil {
		t.Fatal(err)
	}
	return acknowledged && b.read(t, "1").Value == "100+10"
}

// I9: each outcome is a separate error that matches no other.
func TestInvariant9_NoOutcomeIsReportedAsAnother(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx := t.Context()
	all := map[string]error{
		"held": fencepost.ErrHeld, "unavailable": fencepost.ErrUnavailable, "lost": fencepost.ErrLost,
		"stale": fencepost.ErrStale, "spent": fencepost.ErrTokenSpent, "not found": fencepost.ErrNotFound,
		"refused": fencepost.ErrRefused, "unknown": fencepost.ErrOutcomeUnknown,
		"regressed": fencepost.ErrTokenRegressed, "invalid": fencepost.ErrInvalid, "table": fencepost.ErrTable,
	}
	l := b.acquire(t, "invoice-1", nil)
	nine := b.acquire(t, "invoice-9", nil)
	over := b.acquire(t, "invoice-2", nil)
	if err := over.Release(ctx); err != nil {
		t.Fatal(err)
	}
	set := fencepost.Set{"value": "x"}
	_, held := b.store.TryAcquire(ctx, "invoice-1", nil)
	_, invalid := b.store.TryAcquire(ctx, "", nil)
	for want, err := range map[string]error{
		"held":      held,
		"invalid":   invalid,
		"lost":      b.table.Update(ctx, over, fencepost.Key{"2"}, set),
		"not found": b.table.Update(ctx, nine, fencepost.Key{"9"}, set),
		"stale":     writeGuarded(ctx, b, fencepost.Claim{Resource: "nobody's", Token: 1, Nonce: l.Claim().Nonce}, "x"),
	} {
		for name, sentinel := range all {
			if errors.Is(err, sentinel) != (name == want) {
				t.Errorf("%s: %v matches %s: %v", want, err, name, errors.Is(err, sentinel))
			}
		}
	}
	// The control: the statement alone reports neither the missing row nor the stale token.
	tag, err := b.pool.Exec(ctx, `UPDATE app.invoice SET value = 'x' WHERE id = '9' AND last_fencing_token < 5`)
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("the control: %v, %v", tag, err)
	}
}
