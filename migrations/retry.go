package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	// lockAttempts bounds how often a migration queues for a table lock.
	lockAttempts = 5
	// Between two attempts the table is everybody's for at least minPause, so that those who queued
	// behind the migration get through; the rest is jitter.
	minPause  = 500 * time.Millisecond
	maxJitter = 500 * time.Millisecond
)

// retryLocked runs fn until it succeeds, fails otherwise than by a lock timeout, or has been run
// lockAttempts times. ctx ends the pauses too.
func retryLocked(ctx context.Context, log *slog.Logger, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !lockTimedOut(err) {
			return err
		}
		if attempt == lockAttempts {
			return &gaveUpError{attempts: attempt, err: err}
		}
		log.InfoContext(ctx, "migration waits for a table lock", "attempt", attempt, "of", lockAttempts)
		if ctxErr := pause(ctx); ctxErr != nil {
			return fmt.Errorf("wait between attempts: %w", errors.Join(ctxErr, err))
		}
	}
}

// lockTimedOut reports whether another attempt may help: none does once an inner loop gave up.
func lockTimedOut(err error) bool {
	var gaveUp *gaveUpError
	return sqlState(err) == stateLockTimeout && !errors.As(err, &gaveUp)
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(minPause + rand.N(maxJitter))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
