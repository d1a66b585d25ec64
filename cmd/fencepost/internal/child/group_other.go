//go:build !unix

package child

import (
	"os"
	"os/exec"
)

// inOwnGroup does nothing: there are no process groups here.
func inOwnGroup(*exec.Cmd) {}

// signalGroup ends the program on any signal but nil, because nothing else can be sent to it.
func signalGroup(pid int, sig os.Signal) bool {
	p, err := os.FindProcess(pid)
	if err != nil || sig == nil {
		return false
	}
	return p.Kill() == nil
}
