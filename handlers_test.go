package fencepost_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

// once calls fn the first time that it is itself called.
func once(fn func()) func() {
	var called atomic.Bool
	return func() {
		if called.CompareAndSwap(false, true) {
			fn()
		}
	}
}

// recordHandler is a log handler that runs the caller's code.
type recordHandler struct {
	slog.Handler
	told func()
}

func (h recordHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h recordHandler) Handle(context.Context, slog.Record) error {
	h.told()
	return nil
}

// C61: the handler of a lift may write under the lease, even if the row is ahead of its fence again by then and the
// pool has one connection.
func TestCase61_AHandlerMayUseTheLease(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(o *fencepost.Options, told func()){
		"claim": func(o *fencepost.Options, told func()) {
			o.Events.ClaimWait = func(context.Context, string, fencepost.Token, time.Duration) { told() }
		},
		"lift": func(o *fencepost.Options, told func()) {
			o.Events.Regression = func(context.Context, string, fencepost.Token, fencepost.Token) { told() }
			o.Events.Reseed = o.Events.Regression
		},
		"log": func(o *fencepost.Options, told func()) {
			o.Logger = slog.New(recordHandler{told: told})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fencepost.Options{})
			config := b.pool.Config()
			config.MaxConns = 1
			single, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(single.Close)
			var l *fencepost.Lease
			var own *fencepost.Table[Invoice]
			told := make(chan error, 1)
			opts := b.opts
			tell := once(func() {
				exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 200 WHERE id = '1'`)
				told <- own.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "handler"})
			})
			handle(&opts, func() {
				if l != nil { // and not of the acquire
					tell()
				}
			})
			s, err := fencepost.New(single, b.rdb, &opts)
			if err != nil {
				t.Fatal(err)
			}
			own = table(t, s)
			l = acquire(t, s, "invoice-1", nil)
			exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100 WHERE id = '1'`)
			done := make(chan error, 1)
			go func() { done <- own.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "caller"}) }()
			for _, written := range []<-chan error{told, done} {
				select {
				case err := <-written:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("a write waits for itself")
				}
			}
			if r := b.read(t, "1"); l.Token() != 200 || r.Value != "caller" {
				t.Errorf("token %d, %+v", l.Token(), r)
			}
		})
	}
}
