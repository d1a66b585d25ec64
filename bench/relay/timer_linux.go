package relay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer waits as exactly as the kernel can.
type timer struct {
	fd   int
	file *os.File
	read [8]byte
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// until returns at a time, or at once after it.
func (t *timer) until(due time.Time) error {
	d := time.Until(due)
	if d <= 0 {
		return nil
	}
	err := unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	if err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	_, err = t.file.Read(t.read[:])
	return err
}

func (t *timer) close() { _ = t.file.Close() }
