package advisory_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// asking is a log handler that calls the lease, like one that adds the held leases to each record.
type asking struct {
	slog.Handler
	ask func()
}

func (asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(context.Context, slog.Record) error {
	a.ask()
	return nil
}

// No lock is held while the caller's code runs, however a lease ends.
func TestALogHandlerMayAskTheLease(t *testing.T) {
	t.Parallel()
	var suspended atomic.Int64
	for name, end := range map[string]func(t *testing.T, pool *pgxpool.Pool, l *advisory.Lease){
		"session ended": func(t *testing.T, pool *pgxpool.Pool, _ *advisory.Lease) {
			t.Helper()
			terminate(t, pool, "session ended")
		},
		"abandoned": func(_ *testing.T, _ *pgxpool.Pool, l *advisory.Lease) {
			l.Abandon(advisory.ReasonSession, errors.New("stale"))
		},
		"clock": func(_ *testing.T, _ *pgxpool.Pool, l *advisory.Lease) {
			suspended.Store(int64(time.Hour))
			_ = l.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testenv.Pool(t)
			leases, asked := make(chan *advisory.Lease, 1), make(chan struct{})
			handler := asking{ask: func() {
				l := <-leases
				_, _, _, _ = l.Err(), l.Remaining(), l.Token(), l.Context()
				close(asked)
			}}
			boot := func() time.Duration { return 0 }
			if name == "clock" {
				boot = func() time.Duration { return time.Duration(suspended.Load()) }
			}
			locker, err := advisory.NewLockerOn(pool, &advisory.Options{Label: name, Logger: slog.New(handler)}, boot)
			if err != nil {
				t.Fatal(err)
			}
			l := acquire(t, locker, "r")
			leases <- l
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(t, pool, l)
			}()
			for _, done := range []chan struct{}{ended, asked} {
				select {
				case <-done:
				case <-time.After(20 * time.Second):
					t.Fatal("deadlock")
				}
			}
		})
	}
}
