package process

import "syscall"

// dieWithParent is for the one case that the parent cannot clean up after: its own SIGKILL. A
// stopped child would otherwise stay for ever.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
