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
	// minPause is the shortest pause between two attempts. During the pause the sessions that queued behind the
	// migration use the table. The rest of a pause is jitter.
	minPause  = 500 * time.Millisecond
	maxJitter = 500 * time.Millisecond
)

// retryLocked runs fn until it succeeds, fails with an error other than a lock timeout or a deadlock, or has run
// lockAttempts times. If ctx ends, a pause ends too.
func retryLocked(ctx context.Context, log *slog.Logger, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !lockRefused(err) {
			return err
		}
		if attempt == lockAttempts {
			return &gaveUpError{attempts: attempt, err: err}
		}
		log.InfoContext(ctx, "migration waits for a table lock", "attempt", attempt, "of", lockAttempts)
		if ctxErr := sleep(ctx, minPause+rand.N(maxJitter)); ctxErr != nil {
			return fmt.Errorf("wait between attempts: %w", errors.Join(ctxErr, err))
		}
	}
}

// lockRefused reports whether another attempt may help. It does not help after an inner loop gave up.
func lockRefused(err error) bool {
	var gaveUp *gaveUpError
	state := sqlState(err)
	return (state == stateLockTimeout || state == stateDeadlock) && !errors.As(err, &gaveUp)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
