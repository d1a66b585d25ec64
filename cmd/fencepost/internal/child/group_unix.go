//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// inOwnGroup gives the program a process group of its own, which a signal reaches as a whole. On Linux the program also
// gets SIGTERM if we are killed: nobody would renew its lease any more.
func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.DieWithParent(cmd.SysProcAttr, syscall.SIGTERM)
}

// signalGroup sends a signal to a group, and reports whether anything is left of it. A nil signal only asks.
func signalGroup(group int, sig os.Signal) bool {
	number, _ := sig.(syscall.Signal)
	return syscall.Kill(-group, number) == nil
}
