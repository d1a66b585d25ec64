package lease

import (
	"testing"
	"time"
)

// The real clocks agree while nothing is suspended and nobody sets them.
func TestSystemClock(t *testing.T) {
	t.Parallel()
	c := newSystemClocks(nil)
	start := c.now()
	longest, monotonic := c.now().Since(start)
	if monotonic < 0 || longest < monotonic || longest > monotonic+time.Second {
		t.Errorf("%v by the longest clock and %v by the monotonic one", longest, monotonic)
	}
}
