package fencepost_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

var slots = []string{"slot-1", "slot-2", "slot-3"}

// anyOf releases what it got when the test ends.
func anyOf(t *testing.T, s *fencepost.Store, resources []string, opts *fencepost.AcquireOptions) *fencepost.Lease {
	t.Helper()
	l, err := s.AcquireAny(t.Context(), resources, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

// left returns the store's keys in Redis, except counters.
func (b *bundle) left(t *testing.T) []string {
	t.Helper()
	var left []string
	keys := b.rdb.Scan(t.Context(), 0, b.prefix()+":*", 10_000).Iterator()
	for keys.Next(t.Context()) {
		if key := keys.Val(); key[len(key)-len(":token"):] != ":token" {
			left = append(left, key)
		}
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return left
}

// eventually waits for something that happens in the background.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in 20 s", what)
		}
	}
}

// As many callers as there are slots hold one each. The next caller gets ErrHeld. Slots that are free are used.
func TestAcquireAnyTakesWhatIsFree(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	_, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(open[name], "")
			var got []string
			for range slots {
				l := anyOf(t, s, append(slots, slots...), nil)
				if got = append(got, l.Resource()); l.Err() != nil || l.Token() == 0 {
					t.Errorf("%q: %v, token %d", l.Resource(), l.Err(), l.Token())
				}
			}
			if slices.Sort(got); !slices.Equal(got, slots) {
				t.Errorf("got %q", got)
			}
			watched := openStore(open[name], "", fencepost.Events{Refused: j.events().Refused})
			ctx, cancel := context.WithTimeout(span(t.Context()), 2*time.Second)
			defer cancel()
			l, err := watched.AcquireAny(ctx, slots, nil)
			wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded)
			if l != nil || errors.Is(err, fencepost.ErrUnavailable) {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
	t.Cleanup(func() {
		if len(j.told) != 3*len(slots) {
			t.Errorf("told %q, want each slot once for each store", j.told)
		}
	})
}

// countHolders has each holder enter its slot in a table while it works, and returns the largest number that were there
// at the same time.
func countHolders(ctx context.Context, pool *pgxpool.Pool, l *fencepost.Lease) (atOnce int, err error) {
	if _, err := pool.Exec(ctx, `INSERT INTO app.holder VALUES ($1)`, l.Resource()); err != nil {
		return 0, err // another caller is in the slot
	}
	err = pool.QueryRow(ctx, `SELECT count(*) FROM app.holder`).Scan(&atOnce)
	_, left := pool.Exec(ctx, `DELETE FROM app.holder WHERE slot = $1`, l.Resource())
	return atOnce, errors.Join(err, left)
}

// With many callers in several processes, never more than n hold a slot, no two share one, each is served, and nothing
// is left behind.
func TestAcquireAnyIsASemaphore(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	exec(t, pool, `CREATE TABLE app.holder (slot text PRIMARY KEY)`)
	for name, rounds := range map[string]int{"New": 12, "NewQuorum": 3, "NewAdvisory": 6} {
		t.Run(name, func(t *testing.T) {
			own := []string{name + "-1", name + "-2", name + "-3"}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var most atomic.Int32
			var workers sync.WaitGroup
			for range 3 { // processes
				s := openStore(open[name], "")
				for range 4 {
					workers.Go(func() {
						for range rounds {
							err := useASlot(ctx, pool, s, own, &most)
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			if workers.Wait(); most.Load() > int32(len(own)) || most.Load() < 2 {
				t.Errorf("%d at a time in %d slots", most.Load(), len(own))
			}
			s := openStore(open[name], "")
			for _, slot := range own { // free at once: no lease and no place of a waiter is left
				eventually(t, slot, func() bool {
					l, err := s.TryAcquire(ctx, slot, nil)
					return err == nil && l.Release(ctx) == nil
				})
			}
		})
	}
}

func useASlot(ctx context.Context, pool *pgxpool.Pool, s *fencepost.Store, own []string, most *atomic.Int32) error {
	l, err := s.AcquireAny(ctx, own, nil)
	if err != nil {
		return err
	}
	atOnce, err := countHolders(ctx, pool, l)
	for now := int32(atOnce); now > most.Load(); {
		most.Store(now)
	}
	return errors.Join(err, s.Tx(ctx, func(context.Context, pgx.Tx) error { return nil }, l), l.Release(ctx))
}

// waiters queue up for every slot, one after the other, and send the slots that they get.
func (b *bundle) waiters(t *testing.T, s *fencepost.Store, n int) []chan *fencepost.Lease {
	t.Helper()
	var all []chan *fencepost.Lease
	for i := range n {
		got := make(chan *fencepost.Lease, 1)
		all = append(all, got)
		go func() {
			l, err := s.AcquireAny(t.Context(), slots, nil)
			if err == nil {
				got <- l
			}
		}()
		eventually(t, "a waiter queues up", func() bool {
			for _, slot := range slots {
				if n, err := b.rdb.ZCard(t.Context(), b.prefix()+":{"+slot+"}:queue").Result(); err != nil || n != int64(i+1) {
					return false
				}
			}
			return true
		})
	}
	return all
}

// A slot goes to the waiter that came first, and the others sleep on: the number of messages does not grow with the
// number of waiters.
func TestAcquireAnyServesInOrderAndWakesOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	var held []*fencepost.Lease
	for range slots {
		held = append(held, anyOf(t, b.another(t), slots, nil))
	}
	client, sent := testenv.Redis(t), &sentToRedis{}
	client.AddHook(sent)
	s, err := fencepost.New(b.pool, client, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	const n = 30
	waiting := b.waiters(t, s, n)
	before := sent.commands.Load()
	for i := range 2 {
		if err := held[i].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case l := <-waiting[i]:
			if l.Resource() != held[i].Resource() {
				t.Errorf("%q was released, and %q acquired", held[i].Resource(), l.Resource())
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the waiter that came as number %d does not get the slot", i)
		}
	}
	if n := sent.commands.Load() - before; n > 2*12 {
		t.Errorf("%d commands for two slots", n)
	}
	for i, got := range waiting[2:] {
		if len(got) > 0 {
			t.Errorf("waiter %d came out of turn", i+2)
		}
	}
}

// A caller that gives up leaves no lease and no place in a queue behind. Neither does a caller that is served.
func TestAcquireAnyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	var held []*fencepost.Lease
	for range slots {
		held = append(held, anyOf(t, b.store, slots, nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- second(b.another(t).AcquireAny(ctx, slots, nil)) }()
	eventually(t, "it waits", func() bool { return len(b.left(t)) == 2*len(slots) })
	cancel()
	wantErr(t, <-given, context.Canceled, fencepost.ErrHeld)
	eventually(t, "its places are given up", func() bool { return len(b.left(t)) == len(slots) })

	got := b.waiters(t, b.another(t), 1)[0]
	releaseAll(t, held) // all at once: it keeps one of them
	l := <-got
	eventually(t, "only its lease is there", func() bool {
		return slices.Equal(b.left(t), []string{b.leaseKey(l.Resource())})
	})
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is left", func() bool { return len(b.left(t)) == 0 })
}

// A slot whose last holder has a transaction open is passed over, and remains for the others.
func TestAcquireAnyPassesOverABusyFence(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := whileGuarded(t, b.store, func() error {
		for range 4 { // whichever is tried first
			l, err := b.store.AcquireAny(shortly(t.Context(), t), []string{"r", "other"}, nil)
			if err != nil || l.Resource() != "other" {
				t.Fatalf("got %v, %v", l, err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	anyOf(t, b.store, []string{"r"}, nil)
}

// A resource that cannot be waited for does not keep the caller from the others. A resource that the caller itself
// holds is left out.
func TestAcquireAnyOfWhatCannotBeHad(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	if err := b.rdb.Set(t.Context(), b.leaseKey("bad"), "somebody's", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		l := anyOf(t, b.store, []string{"bad", "good"}, nil)
		if err := l.Release(t.Context()); l.Resource() != "good" || err != nil {
			t.Errorf("%q, %v", l.Resource(), err)
		}
	}
	wantErr(t, second(b.store.AcquireAny(t.Context(), []string{"bad"}, nil)), fencepost.ErrBadKey)
	for _, resources := range [][]string{nil, {"a", ""}, {"\x00"}} {
		wantErr(t, second(b.store.AcquireAny(t.Context(), resources, nil)), fencepost.ErrInvalid)
	}
	wantErr(t, second(b.store.AcquireAny(t.Context(), slots, &fencepost.AcquireOptions{TTL: 1})), fencepost.ErrInvalid)
	l := anyOf(t, b.store, []string{"mine"}, nil)
	other, err := b.store.AcquireAny(l.Context(), []string{"mine", "other"}, nil)
	if err != nil || other.Resource() != "other" {
		t.Fatalf("%v, %v", other, err)
	}
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wantHeldByCaller(t, "AcquireAny", second(b.store.AcquireAny(l.Context(), []string{"mine"}, nil)))
}

// The control: a caller that has picked one slot waits for it, although another slot is free.
func TestAcquireAnyControl_OneSlotIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	acquire(t, b.another(t), slots[0], nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	wantErr(t, second(b.store.Acquire(ctx, slots[0], nil)), fencepost.ErrHeld, context.DeadlineExceeded)
	if l := anyOf(t, b.store, slots, nil); l.Resource() == slots[0] {
		t.Errorf("got %q, which is held", l.Resource())
	}
}

// I9: when ctx ends, the error says so, even if another slot had been given up before.
func TestInvariant9_AcquireAnyTellsThatItsContextEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	acquire(t, b.another(t), "held", nil)
	last := acquire(t, b.another(t), "busy", nil)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		err := errors.Join(fence.Enter(t.Context(), tx, last.Claim()), last.Release(t.Context()))
		if err != nil {
			return err
		}
		for range 6 { // beginning at a random one
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			opts := &fencepost.AcquireOptions{ClaimWait: 20 * time.Millisecond}
			_, err := b.store.AcquireAny(ctx, []string{"held", "busy"}, opts)
			wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded)
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
