package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// sinceBoot reads CLOCK_BOOTTIME, which keeps running while the machine is suspended.
func sinceBoot() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
