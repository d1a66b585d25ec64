package process

import "syscall"

// DieWithParent makes the kernel send a signal to a child whose parent has died, the one case in which the parent
// cannot clean up. Otherwise a stopped child would stay forever. Start the child with [OnThread].
func DieWithParent(a *syscall.SysProcAttr, s syscall.Signal) { a.Pdeathsig = s }
