// Package wait waits for time to pass, for measurements and faults that are about time.
package wait

import (
	"context"
	"time"
)

// For returns nil after d, or the cause of ctx once that has ended.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
