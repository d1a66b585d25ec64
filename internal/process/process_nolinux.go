//go:build !linux

package process

import "syscall"

// DieWithParent does nothing: POSIX makes the kernel resume a stopped process group that loses its parent, with SIGHUP,
// which ends it.
func DieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
