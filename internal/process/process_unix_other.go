//go:build unix && !linux

package process

import "syscall"

// dieWithParent has nothing to add: a stopped process group that loses its parent is resumed by the
// kernel with SIGHUP, which ends it.
func dieWithParent(*syscall.SysProcAttr) {}
