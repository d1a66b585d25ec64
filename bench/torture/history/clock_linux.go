package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now reads the clock that the records' times are of: CLOCK_MONOTONIC, which all processes of this machine share.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("no CLOCK_MONOTONIC: " + err.Error()) // every Linux has it
	}
	return time.Duration(ts.Nano())
}
