//go:build unix && !linux

package services

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
