//go:build !unix

package services

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Without sessions, process groups and credentials only servers named by address and containers work; this file lets
// the rest compile.

func ownGroup(*exec.Cmd, *account) {}

func signalGroup(pid int, s syscall.Signal) error {
	if s != syscall.SIGKILL {
		return errors.ErrUnsupported
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

const (
	sigStop = syscall.SIGTERM
	sigCont = syscall.SIGTERM
)
