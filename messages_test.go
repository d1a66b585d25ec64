package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// If a wait ends with its context, the error names that once, whatever the call waited for.
func TestACancelledWaitSaysSoOnce(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			letGo := holding(t, open(""), "r")
			defer letGo()
			waiting, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			wantOnce(t, open("").Do(waiting, "r", setValue("x")))
		})
	}
	b := setup(t, fencepost.Options{})
	letGo := holding(t, b.store, "r")
	defer letGo()
	b.forget(t, "r") // so that it is the claim which waits
	waiting, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantOnce(t, second(b.another(t).Acquire(waiting, "r", nil)))
}

// waitsFor is the time of a wait that must end with its context: long enough for a busy machine to find out why it
// waits.
const waitsFor = 2 * time.Second

func wantOnce(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || strings.Count(err.Error(), context.DeadlineExceeded.Error()) != 1 {
		t.Errorf("got %v", err)
	}
}

// If a transaction's context ends, the error names that once too.
func TestACancelledTransactionSaysSoOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "r", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantOnce(t, b.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
		return err
	}, l))
}

// wantOneLine requires an error that a log shows on one line.
func wantOneLine(t *testing.T, err error) {
	t.Helper()
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q", err)
	}
}

// If an acquire ends with its context while another holds the lease, the error says both on one line, and matches both.
func TestAnEndedWaitIsOneLine(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			letGo := holding(t, open(""), "r")
			defer letGo()
			waiting, cancel := context.WithTimeout(t.Context(), waitsFor)
			defer cancel()
			err := open("").Do(waiting, "r", setValue("x"))
			wantErr(t, err, context.DeadlineExceeded, fencepost.ErrHeld)
			wantOneLine(t, err)
		})
	}
}

// A claim that was cancelled names the resource, and reports no unknown outcome: nothing was acquired.
func TestACancelledClaimNamesItsResource(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, _ func(t *testing.T) bool) {
		t.Helper()
		err := whileGuarded(t, s, func() error {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(waitsFor, cancel)
			return second(s.Acquire(ctx, "r", nil))
		})
		wantErr(t, err, context.Canceled, fencepost.ErrUnavailable)
		if errors.Is(err, fencepost.ErrOutcomeUnknown) || strings.Contains(err.Error(), "outcome unknown") ||
			!strings.Contains(err.Error(), `:r"`) {
			t.Errorf("got %v", err)
		}
		wantOneLine(t, err)
	})
}

// If a function overlooks the error of a statement and returns nil, the call's error says that nothing was written.
func TestAnOverlookedErrorSaysThatNothingWasWritten(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	overlooks := func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, `SELECT 1/0`)
		return nil
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open("")
			var joined error
			for name, err := range map[string]error{
				"Do": s.Do(t.Context(), "r", overlooks),
				"Join": s.Do(t.Context(), "r", func(ctx context.Context, _ pgx.Tx) error {
					joined = s.Join(ctx, "r", overlooks)
					return joined
				}),
			} {
				text := "fencepost: rolled back: a statement failed, the function returned nil, and nothing"
				if wantErr(t, err, pgx.ErrTxCommitRollback); err == nil || !strings.HasPrefix(err.Error(), text) {
					t.Errorf("%s: got %v", name, err)
				}
			}
		})
	}
}

// The error names the outcome first, and then the step that failed.
func TestAnErrorSaysItsOutcomeFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	err := b.table.UpdateBatch(t.Context(), l, []fencepost.Change{{Key: fencepost.Key{}}}, nil)
	wantErr(t, err, fencepost.ErrInvalid)
	b.pool.Close()
	work := func(context.Context, pgx.Tx) (int, error) { return 0, nil }
	_, undeclared := fencepost.NewTable[Invoice](t.Context(), b.store, invoiceSpec())
	for doing, err := range map[string]error{
		"look into the ledger": second(fencepost.DoOnce(t.Context(), b.store, "r", "k", nil, work)),
		"read the catalog":     undeclared,
	} {
		wantErr(t, err, fencepost.ErrUnavailable)
		if err == nil || !strings.HasPrefix(err.Error(), "fencepost: unavailable: "+doing+": ") {
			t.Errorf("got %v", err)
		}
	}
}
