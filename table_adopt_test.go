package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-pg/fencepost"
)

func fenceAt(t *testing.T, b *bundle, resource string) int64 {
	t.Helper()
	return value[int64](
		t,
		b.pool,
		`SELECT coalesce((SELECT token FROM fencepost.fence WHERE resource = $1), 0)`,
		b.opts.Namespace+":"+resource,
	)
}

// Adopt lifts fences to above their rows, leaves a current holder in peace, and can be run again.
func TestAdoptLiftsFencesToTheirRows(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	exec(t, b.pool, `
		UPDATE app.invoice SET last_fencing_token = 100 + id::bigint WHERE id IN ('1', '2');
		INSERT INTO app.invoice (id, last_fencing_token) SELECT 'many-' || n, n FROM generate_series(1, 200) AS n`)
	held := b.acquire(t, "invoice-2", nil)
	other := b.another(t)
	for range 2 {
		done, err := table(t, other).Adopt(t.Context())
		if err != nil || done.Lifted != 201 || len(done.Held) != 1 || done.Held[0] != "invoice-2" {
			t.Errorf("adopted %d, held %q, %v", done.Lifted, done.Held, err)
		}
	}
	if at := fenceAt(t, b, "invoice-1"); at <= 101 {
		t.Errorf("the fence is at %d", at)
	}
	if at := fenceAt(t, b, "invoice-3"); at != 0 {
		t.Errorf("a row without a token got a fence at %d", at)
	}
	if n := value[int](t, b.pool, `SELECT count(*) FROM fencepost.fence AS f JOIN app.invoice AS i
		ON f.resource = $1 || ':invoice-' || i.id WHERE i.id LIKE 'many-%'
			AND f.token > i.last_fencing_token`, b.opts.Namespace); n != 200 {
		t.Errorf("%d of 200 fences are above their rows", n)
	}
	// The holder was not overtaken, and heals by itself.
	if err := b.table.Update(
		t.Context(),
		held,
		fencepost.Key{"2"},
		fencepost.Set{"value": "held"},
	); err != nil ||
		held.Token() != 102 {
		t.Errorf("token %d, %v", held.Token(), err)
	}
	// The next grant of what was adopted needs no lift, neither of its token nor of its lease.
	l := b.acquire(t, "invoice-1", nil)
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}); err != nil {
		t.Error(err)
	}
	if c.want(t, 1, 0); l.Token() <= 101 { // the holder's own
		t.Errorf("token %d", l.Token())
	}
	for _, resource := range []string{"invoice-1", "invoice-many-7"} {
		if resource != "invoice-1" && !b.free(t, resource) {
			t.Errorf("%s is still held", resource)
		}
	}
}

// Without Redis the fence counts, and Adopt lifts it as well.
func TestAdoptOverAdvisoryLocks(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	exec(
		t,
		pool,
		`UPDATE app.invoice
			SET last_fencing_token = CASE id WHEN '1' THEN 100 WHEN '2' THEN (1::bigint << 40) + 10 ELSE 0 END`,
	)
	s := advisoryStore(t, pool, opts)
	invoices := table(t, s)
	for range 2 {
		done, err := invoices.Adopt(t.Context())
		if wantErr(t, err, fencepost.ErrTokenRegressed); done.Lifted != 1 || len(done.Held) != 0 {
			t.Errorf("adopted %+v, %v", done, err)
		}
	}
	l := acquire(t, s, "invoice-1", nil)
	if err := invoices.Update(
		t.Context(),
		l,
		fencepost.Key{"1"},
		fencepost.Set{"value": "x"},
	); err != nil ||
		l.Token() <= 101 {
		t.Errorf("token %d, %v", l.Token(), err)
	}
}

// A token that no fence may jump to is named, and the rest is adopted.
func TestAdoptNamesWhatItCannotLift(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = CASE id
		WHEN '1' THEN 9223372036854775807 WHEN '2' THEN (1::bigint << 40) + 10 ELSE (1::bigint << 40) - 10 END`)
	done, err := b.table.Adopt(t.Context())
	wantErr(t, err, fencepost.ErrTokenRegressed)
	if done.Lifted != 1 || len(done.Held) != 0 {
		t.Errorf("adopted %+v, %v", done, err)
	}
	if at := fenceAt(t, b, "invoice-3"); at != 1<<40-9 {
		t.Errorf("the fence is at %d", at)
	}
	if at := fenceAt(t, b, "invoice-2"); at > 1<<20 {
		t.Errorf("a wild number got through: the fence is at %d", at)
	}
}

// A run that ends half way says so, and the next one finishes.
func TestAdoptEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 50`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.table.Adopt(ctx)
	wantErr(t, err, fencepost.ErrUnavailable, context.Canceled)
	done, err := b.table.Adopt(t.Context())
	if err != nil || done.Lifted != 3 {
		t.Errorf("adopted %+v, %v", done, err)
	}
}

// By group, the highest of the group counts; adopting beside a crowd of workers overtakes none of them.
func TestAdoptBesideWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE TABLE app.line (tenant bigint, id bigint, n bigint NOT NULL DEFAULT 0,
			last_fencing_token bigint NOT NULL DEFAULT 0, PRIMARY KEY (tenant, id));
		INSERT INTO app.line (tenant, id, last_fencing_token) SELECT n % 4, n, n FROM generate_series(1, 400) AS n`)
	type line struct{ N int64 }
	lines, err := fencepost.NewTable[line](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "line", Key: []string{"tenant", "id"}, Resource: fencepost.PerGroup("tenant:", "tenant"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	working := make(chan error, 4)
	for tenant := range 4 {
		go func() {
			for ctx.Err() == nil {
				if err := workOn(t.Context(), b.store, lines, tenant); err != nil {
					working <- err
					return
				}
			}
			working <- nil
		}()
	}
	for range 3 {
		if _, err := lines.Adopt(t.Context()); err != nil {
			t.Error(err)
		}
	}
	cancel()
	for range 4 {
		if err := <-working; err != nil {
			t.Error(err)
		}
	}
	if done, err := lines.Adopt(t.Context()); err != nil || done.Lifted != 4 {
		t.Errorf("adopted %+v, %v", done, err)
	}
	if at := fenceAt(t, b, "tenant:0"); at < 400 {
		t.Errorf("the fence is at %d", at)
	}
}

// workOn writes a row of one tenant under its lease.
func workOn[T any](ctx context.Context, s *fencepost.Store, lines *fencepost.Table[T], tenant int) error {
	resource, err := lines.Resource(fencepost.Key{tenant, 0})
	if err != nil {
		return err
	}
	l, err := s.Acquire(ctx, resource, nil)
	if err != nil {
		return err
	}
	err = second(lines.Upsert(ctx, l, fencepost.Key{tenant, 400 + tenant}, fencepost.Set{"n": 1}))
	return errors.Join(err, l.Release(ctx))
}
