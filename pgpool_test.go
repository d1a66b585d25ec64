package fencepost_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// C32: behind a Pgpool-II that sends reads to a lagging standby, each of 400 acknowledged read-modify-writes
// counts. The control is the plain read, which the standby answers; inside Tx the primary does, since the guard has
// been there.
func TestCase32_NoUpdateIsLostBehindPgpool(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	behind := testenv.PoolOn(t, testenv.Pgpool(t, pair, "postgres").URL())
	s, err := fencepost.New(behind, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, s)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if err := raiseByOne(t.Context(), s, invoices); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := b.read(t, "1").Value; got != "400" {
		t.Errorf("of 400 acknowledged updates %s are there", got)
	}
	exec(t, testenv.PoolOn(t, pair.Standby.URL()), `SELECT pg_wal_replay_pause()`)
	exec(t, b.pool, `UPDATE app.invoice SET value = 'newer' WHERE id = '1'`)
	if got := value[string](t, behind, `SELECT value FROM app.invoice WHERE id = '1'`); got == "newer" {
		t.Error("the control: a plain read is not answered by the standby")
	}
	l := acquire(t, s, "invoice-1", nil)
	if row, err := invoices.Get(t.Context(), l, fencepost.Key{"1"}); err != nil || row.Value != "newer" {
		t.Errorf("read %+v, %v", row, err)
	}
	err = s.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		var got string
		err := tx.QueryRow(ctx, `SELECT value FROM app.invoice WHERE id = '1'`).Scan(&got)
		if got != "newer" {
			t.Errorf("a plain read inside Tx is answered %q", got)
		}
		return err
	}, l)
	if err != nil {
		t.Error(err)
	}
}

// raiseByOne reads a number and writes the next, under a lease.
func raiseByOne(ctx context.Context, s *fencepost.Store, invoices *fencepost.Table[Invoice]) error {
	l, err := s.Acquire(ctx, "invoice-1", nil)
	if err != nil {
		return err
	}
	row, err := invoices.Get(ctx, l, fencepost.Key{"1"})
	if err != nil {
		return errors.Join(err, l.Release(ctx))
	}
	err = invoices.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": oneMore(row.Value)})
	return errors.Join(err, l.Release(ctx))
}

func oneMore(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err.Error()
	}
	return strconv.Itoa(n + 1)
}
