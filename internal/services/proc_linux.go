package services

import "syscall"

// dieWithParent is for the one case that the host cannot clean up after: its own
// SIGKILL. SIGQUIT lets PostgreSQL take its backends along; Redis and PgBouncer
// end by it like by any other.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
