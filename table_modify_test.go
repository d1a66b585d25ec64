package fencepost_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// counter adds one to a row's number.
func counter(row *Invoice) error {
	n, err := strconv.Atoi(row.Value)
	row.Value = strconv.Itoa(n + 1)
	return err
}

// I7, C06 d: goroutines that share a lease and Modify one row lose no update. The control, a Get and then an Update
// under the same lease, loses one if two of them overlap.
func TestInvariant7_Case06d_ModifyLosesNoUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key, l := t.Context(), fencepost.Key{"1"}, b.acquire(t, "invoice-1", nil)
	const workers, rounds = 4, 10
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				if err := b.table.Modify(ctx, l, key, counter); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r := b.read(t, "1"); r.Value != strconv.Itoa(workers*rounds) || r.LastFencingToken != l.Token() {
		t.Errorf("after %d updates the row is %+v", workers*rounds, r)
	}
	// The control: both read before either writes.
	two := b.acquire(t, "invoice-2", nil)
	one, err := b.table.Get(ctx, two, fencepost.Key{"2"})
	other, err2 := b.table.Get(ctx, two, fencepost.Key{"2"})
	if err := errors.Join(err, err2, counter(&one), counter(&other),
		b.table.Update(ctx, two, fencepost.Key{"2"}, fencepost.Set{"value": one.Value}),
		b.table.Update(ctx, two, fencepost.Key{"2"}, fencepost.Set{"value": other.Value})); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "2"); r.Value != "1" {
		t.Errorf("the control lost nothing: %+v", r)
	}
}

// While fn runs, nobody else can read the row for a change: the second Modify waits, and reads what the first wrote.
func TestModifyKeepsTheRowFromReadToCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key, l := t.Context(), fencepost.Key{"1"}, b.acquire(t, "invoice-1", nil)
	inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		done <- b.table.Modify(ctx, l, key, func(row *Invoice) error {
			close(inside)
			<-leave
			row.Value = "first"
			return nil
		})
	}()
	<-inside
	go func() {
		done <- b.table.Modify(ctx, l, key, func(row *Invoice) error { row.Value += ", second"; return nil })
	}()
	untilBlocked(t, b.pool, 1)
	close(leave)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "1"); r.Value != "first, second" {
		t.Errorf("the row is %+v", r)
	}
}

// After a deadlock fn is called again with a fresh row. If fn returns an error or panics, nothing is changed.
func TestModifyRunsAgainWithAFreshRow(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key, l := t.Context(), fencepost.Key{"1"}, b.acquire(t, "invoice-1", nil)
	exec(t, b.pool, `
		CREATE SEQUENCE app.tries;
		CREATE FUNCTION app.fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('app.tries') < 3 THEN RAISE EXCEPTION USING ERRCODE = '40P01'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER fail BEFORE UPDATE ON app.invoice FOR EACH ROW EXECUTE FUNCTION app.fail()`)
	var seen []string
	err := b.table.Modify(ctx, l, key, func(row *Invoice) error {
		seen = append(seen, row.Value)
		row.Value += "+"
		return nil
	})
	if r := b.read(t, "1"); err != nil || r.Value != "0+" || len(seen) != 3 || seen[2] != "0" {
		t.Errorf("%v: saw %q, the row is %+v", err, seen, r)
	}
	mine := errors.New("mine")
	before := b.read(t, "1")
	if err := b.table.Modify(
		ctx,
		l,
		key,
		func(row *Invoice) error { row.Value = "x"; return mine },
	); !errors.Is(
		err,
		mine,
	) {
		t.Errorf("fn's error came back as %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = b.table.Modify(ctx, l, key, func(row *Invoice) error { row.Value = "x"; panic("fn") })
	}()
	if r := b.read(t, "1"); r != before {
		t.Errorf("the row was %+v and is %+v", before, r)
	}
	if n := b.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were kept", n)
	}
}

// Only fields that fn changed are written. A change of a field that fn may not change is refused.
func TestModifyWritesWhatHasChanged(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE TABLE app.basket (
			id text PRIMARY KEY, tags text[] NOT NULL DEFAULT '{a,b}', note jsonb NOT NULL DEFAULT '{"k": 1}',
		seen timestamptz, n integer NOT NULL DEFAULT 0,
			last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO app.basket (id) VALUES ('1');
		CREATE TABLE app.touched (columns text[]);
		CREATE FUNCTION app.touch() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO app.touched SELECT array_agg(n.key ORDER BY n.key) FROM jsonb_each(to_jsonb(NEW)) AS n
				JOIN jsonb_each(to_jsonb(OLD)) AS o USING (key) WHERE n.value <> o.value;
			RETURN NULL;
		END $$;
		CREATE TRIGGER touch AFTER UPDATE ON app.basket FOR EACH ROW EXECUTE FUNCTION app.touch()`)
	type stamp struct{ LastFencingToken fencepost.Token }
	type basket struct {
		ID   string
		Tags []string
		Note map[string]any
		Seen *time.Time
		N    int
		stamp
	}
	baskets, err := fencepost.NewTable[basket](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "basket", Key: []string{"id"}, Resource: fencepost.PerRow("basket-"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, key, l := t.Context(), fencepost.Key{"1"}, b.acquire(t, "basket-1", nil)
	modify := func(fn func(row *basket)) error {
		return baskets.Modify(ctx, l, key, func(row *basket) error { fn(row); return nil })
	}
	if err := modify(func(*basket) {}); err != nil { // nothing changed, nothing written
		t.Fatal(err)
	}
	if got, err := baskets.Get(ctx, l, key); err != nil || got.LastFencingToken != 0 {
		t.Errorf("the row is %+v, %v", got, err)
	}
	if err := modify(func(row *basket) { row.Tags[1] = "changed"; row.Note["k"] = 2 }); err != nil {
		t.Fatal(err)
	}
	if err := modify(func(row *basket) { row.N++ }); err != nil {
		t.Fatal(err)
	}
	got, err := baskets.Get(ctx, l, key)
	if err != nil || got.Tags[0] != "a" || got.Tags[1] != "changed" || got.Note["k"] != 2.0 || got.N != 1 ||
		got.LastFencingToken != l.Token() {
		t.Errorf("the row is %+v, %v", got, err)
	}
	for _, err := range []error{
		modify(func(row *basket) { row.ID = "2" }),
		modify(func(row *basket) { row.LastFencingToken++ }),
	} {
		wantErr(t, err, fencepost.ErrInvalid)
	}
	touched := value[string](t, b.pool, `SELECT string_agg(array_to_string(columns, ' '), '; ') FROM app.touched`)
	if touched != "last_fencing_token note tags; n" {
		t.Errorf("written were %q", touched)
	}
}

// A holder cannot be overtaken while fn waits, because the claim waits for the commit. A holder that was overtaken
// before reads nothing.
func TestModifyUnderAnOvertakenLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, key, l := t.Context(), fencepost.Key{"1"}, b.acquire(t, "invoice-1", nil)
	claimed := make(chan *fencepost.Lease, 1)
	err := b.table.Modify(ctx, l, key, func(row *Invoice) error {
		if err := b.rdb.Del(ctx, b.leaseKey("invoice-1")).Err(); err != nil {
			return err
		}
		rivals := b.another(t)
		go func() {
			rival, err := rivals.Acquire(context.WithoutCancel(ctx), "invoice-1", nil)
			if err != nil {
				t.Error(err)
			}
			claimed <- rival
		}()
		untilBlocked(t, b.pool, 1)
		row.Value = "in time"
		return nil
	})
	rival := <-claimed
	defer func() { _ = rival.Release(context.Background()) }()
	if r := b.read(t, "1"); err != nil || r.Value != "in time" {
		t.Errorf("%v: the row is %+v", err, r)
	}
	called := false
	err = b.table.Modify(ctx, l, key, func(*Invoice) error { called = true; return nil })
	if wantStale(t, err, l.Token(), rival.Token()); called {
		t.Error("fn was called with a row that is another's")
	}
}

// untilBlocked waits until a number of backends wait for a lock.
func untilBlocked(t *testing.T, db testenv.Querier, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := testenv.UntilQuery(ctx, db, `SELECT count(*) = $1 FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`, want)
	if err != nil {
		t.Errorf("the backends that wait for a lock did not become %d: %v", want, err)
	}
}
