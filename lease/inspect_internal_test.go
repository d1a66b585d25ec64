package lease

import (
	"strings"
	"testing"
	"time"
)

// A lease whose end comes between the two questions about it is free, and no bad key. In its last millisecond PTTL
// says 0.
func TestALeaseThatEndsWhileItIsLookedAt(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("a", 32) + " 7 host/1"
	for left, want := range map[time.Duration]Standing{noKey: Free, noTTL: Foreign, 0: Held, time.Millisecond: Held} {
		if got := parseLease(value, left); got.standing != want {
			t.Errorf("PTTL %d: %s, want %s", left, got.standing, want)
		}
	}
}
