package fencepost_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestATableReadsClaimsAndWritesARow(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	key := fencepost.Key{"1"}
	got, err := b.table.Get(t.Context(), l, key)
	if err != nil || got.ID != "1" || got.Value != "0" || got.LastFencingToken != 0 || got.UpdatedAt.IsZero() {
		t.Errorf("read %+v, %v", got, err)
	}
	got, err = b.table.Stamp(t.Context(), l, key)
	if err != nil || got.Value != "0" || got.LastFencingToken != l.Token() {
		t.Errorf("claimed %+v, %v", got, err)
	}
	for _, value := range []string{"first", "second"} { // C06 a
		if err := b.table.Update(t.Context(), l, key, fencepost.Set{"value": value}); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.read(t, "1"); r.Value != "second" || r.LastFencingToken != l.Token() {
		t.Errorf("the row is %+v", r)
	}
}

func TestARowIsWrittenUnderItsOwnResourceOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	other := acquire(t, b.another(t), "invoice-2", nil)
	before := b.pool.Stat().AcquireCount()
	set := fencepost.Set{"value": "x"}
	for name, err := range map[string]error{
		"another resource": b.table.Update(t.Context(), l, fencepost.Key{"2"}, set),
		"another store":    b.table.Update(t.Context(), other, fencepost.Key{"2"}, set),
		"no lease":         b.table.Update(t.Context(), nil, fencepost.Key{"1"}, set),
		"no key":           b.table.Update(t.Context(), l, nil, set),
		"long key":         b.table.Update(t.Context(), l, fencepost.Key{"1", "2"}, set),
		"no columns":       b.table.Update(t.Context(), l, fencepost.Key{"1"}, nil),
		"key column":       b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"id": "2"}),
		"read":             second(b.table.Get(t.Context(), l, fencepost.Key{"2"})),
		"claim":            second(b.table.Stamp(t.Context(), l, fencepost.Key{"2"})),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.pool.Stat().AcquireCount() - before; n != 0 {
		t.Errorf("%d connections were used", n)
	}
	missing := b.acquire(t, "invoice-9", nil)
	_, err := b.table.Get(t.Context(), missing, fencepost.Key{"9"})
	wantErr(t, err, fencepost.ErrNotFound)
	_, err = b.table.Stamp(t.Context(), missing, fencepost.Key{"9"})
	wantErr(t, err, fencepost.ErrNotFound)
}

// A row that is ahead of its fence (imported, restored, written with bare tokens) is not stale for a current holder.
func TestARowAheadOfItsFenceHeals(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100`)
	l := b.acquire(t, "invoice-1", nil)
	if l.Token() != 1 {
		t.Fatalf("token %d", l.Token())
	}
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "healed"}); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "1"); r.Value != "healed" || l.Token() != 100 || r.LastFencingToken != 100 {
		t.Errorf("token %d, row %+v", l.Token(), r)
	}
	two := b.acquire(t, "invoice-2", nil)
	if got, err := b.table.Stamp(t.Context(), two, fencepost.Key{"2"}); err != nil || got.LastFencingToken != 100 {
		t.Errorf("claimed %+v, %v", got, err)
	}
	// A row further ahead than one lift may cover is reported as such.
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 9223372036854775807 WHERE id = '3'`)
	three := b.acquire(t, "invoice-3", nil)
	err := b.table.Update(t.Context(), three, fencepost.Key{"3"}, fencepost.Set{"value": "x"})
	if wantErr(t, err, fencepost.ErrTokenRegressed); errors.Is(err, fencepost.ErrStale) {
		t.Errorf("a current holder was called stale: %v", err)
	}
}

// Healing serves a current holder. A holder that has been overtaken is stale, even if the row is ahead of it.
func TestHealingDoesNotServeAnOvertakenHolder(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	rival := acquire(t, b.another(t), "invoice-1", nil)
	err := fence.Update(t.Context(), b.pool, invoices, rival.Token(), fencepost.Key{"1"}, fencepost.Set{"value": "rival"})
	if err != nil {
		t.Fatal(err)
	}
	wantStale(t, b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}), l.Token(), rival.Token())
	if err := rival.Err(); err != nil {
		t.Error(err)
	}
	if r := b.read(t, "1"); r.Value != "rival" {
		t.Errorf("the row is %+v", r)
	}
}

// Goroutines that share a lease may all meet the row that is ahead. One of them heals it. None of them gets ErrStale,
// nor does a transaction that begins after the fence was lifted and before the lease was.
func TestHealingAmongGoroutines(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for round := range 10 {
		ahead := (round + 1) * 100
		exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = $1`, ahead)
		l := b.acquire(t, "invoice-1", nil)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				var err error
				if i%2 == 0 {
					err = b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"})
				} else {
					err = b.store.Tx(t.Context(), setValue("y"), l)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if int(l.Token()) != ahead {
			t.Errorf("token %d", l.Token())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRegistrationSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE TABLE app.loose (id text PRIMARY KEY, value text, last_fencing_token bigint);
		CREATE TABLE app.narrow (id text PRIMARY KEY, value text, last_fencing_token integer NOT NULL);
		CREATE TABLE app.keyless (id text NOT NULL, value text, last_fencing_token bigint NOT NULL)`)
	type strange struct{ Nothing string }
	type tagged struct {
		Key   string `db:"id"`
		Other int    `db:"-"`
		note  string //nolint:unused // an unexported field is no column
	}
	spec := func(name string) fencepost.TableSpec { s := invoiceSpec(); s.Name = name; return s }
	noRule := invoiceSpec()
	noRule.Resource = fencepost.ResourceRule{}
	if _, err := fencepost.NewTable[tagged](t.Context(), b.store, invoiceSpec()); err != nil {
		t.Error(err)
	}
	for problem, err := range map[string]error{
		"may be NULL":           second(fencepost.NewTable[Invoice](t.Context(), b.store, spec("loose"))),
		"integer, not bigint":   second(fencepost.NewTable[Invoice](t.Context(), b.store, spec("narrow"))),
		"no primary key":        second(fencepost.NewTable[Invoice](t.Context(), b.store, spec("keyless"))),
		"no such table":         second(fencepost.NewTable[Invoice](t.Context(), b.store, spec("none"))),
		"no column for field N": second(fencepost.NewTable[strange](t.Context(), b.store, invoiceSpec())),
	} {
		if wantErr(t, err, fencepost.ErrTable); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("got %v, want it to say %q", err, problem)
		}
	}
	for name, err := range map[string]error{
		"no rule":  second(fencepost.NewTable[Invoice](t.Context(), b.store, noRule)),
		"no store": second(fencepost.NewTable[Invoice](t.Context(), nil, invoiceSpec())),
		"no name":  second(fencepost.NewTable[Invoice](t.Context(), b.store, spec(""))),
		"no field": second(fencepost.NewTable[struct{}](t.Context(), b.store, invoiceSpec())),
		"no rows":  second(fencepost.NewTable[int](t.Context(), b.store, invoiceSpec())),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A column added while connections are open changes nothing: statements name their columns.
func TestAColumnAddedLater(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	for range 2 {
		if _, err := b.table.Stamp(t.Context(), l, fencepost.Key{"1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.table.Get(t.Context(), l, fencepost.Key{"1"}); err != nil {
			t.Fatal(err)
		}
		exec(t, b.pool, `ALTER TABLE app.invoice ADD COLUMN IF NOT EXISTS later text`)
	}
}

// A heal that fails half way, because Redis is away or its reply is lost, leaves no current holder stale.
func TestAHealThatEndsHalfWay(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	b := setupOn(t, testenv.Pool(t), testenv.RedisOn(t, server.URL()), fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 50`)
	l := b.acquire(t, "invoice-1", nil)
	if err := server.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"})
	if resumed := server.Resume(t.Context()); err != nil || resumed != nil {
		t.Errorf("with Redis away: %v, %v", err, resumed)
	}
	proxied, proxy := behindProxy(t, b)
	const label = "found in the claim and not in the guard"
	two := acquire(t, proxied, "invoice-2", &fencepost.AcquireOptions{Label: label})
	invoices := table(t, proxied)
	for _, lost := range []bool{true, false} { // the answer to the lift is lost once
		var dropped <-chan struct{}
		if lost {
			dropped = proxy.DropNextReply(faults.Containing(label))
		}
		err := invoices.Update(t.Context(), two, fencepost.Key{"2"}, fencepost.Set{"value": "y"})
		if lost {
			<-dropped
		}
		if errors.Is(err, fencepost.ErrStale) || !lost && err != nil {
			t.Errorf("answer lost %v: %v", lost, err)
		}
	}
	if r := b.read(t, "2"); r.Value != "y" || r.LastFencingToken != 50 || two.Token() != 50 {
		t.Errorf("token %d, row %+v", two.Token(), r)
	}
}
