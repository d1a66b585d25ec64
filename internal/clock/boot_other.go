//go:build !linux

package clock

import "time"

// sinceBoot has no portable source here; the monotonic and the wall clock remain.
func sinceBoot() time.Duration { return 0 }
