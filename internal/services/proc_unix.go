//go:build unix

package services

import (
	"os/exec"
	"syscall"
)

// ownSession keeps a terminal's Ctrl-C and hang-up away from the process: it ends
// when we do, not at the same moment.
func ownSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// ownGroup lets one signal reach a server and the children it forks, and runs it
// as user (nil: as ourselves).
func ownGroup(cmd *exec.Cmd, user *account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.uid, Gid: user.gid}
	}
	dieWithParent(cmd.SysProcAttr)
}

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)
