//go:build !linux

package relay

import "time"

// timer waits as exactly as Go's timers do.
type timer struct{ timer *time.Timer }

func newTimer() (*timer, error) { return &timer{timer: time.NewTimer(0)}, nil }

// until returns at a time, or at once after it.
func (t *timer) until(due time.Time) error {
	if d := time.Until(due); d > 0 {
		t.timer.Reset(d)
		<-t.timer.C
	}
	return nil
}

func (t *timer) close() { t.timer.Stop() }
