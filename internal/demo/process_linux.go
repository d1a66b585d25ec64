package demo

import "syscall"

// dieWithParent is for the one case that the director cannot clean up after: its own SIGKILL. A
// stopped worker would otherwise stay for ever.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
