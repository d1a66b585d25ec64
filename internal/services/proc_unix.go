//go:build unix

package services

import (
	"os/exec"
	"syscall"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// ownGroup lets one signal reach a server and the children it forks, and runs the server as user (nil: as ourselves).
func ownGroup(cmd *exec.Cmd, user *account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.uid, Gid: user.gid}
	}
	// SIGQUIT makes PostgreSQL end its backends too; for Redis and PgBouncer it is a signal like any other.
	process.DieWithParent(cmd.SysProcAttr, syscall.SIGQUIT)
}

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)
