// Package process manages child processes. It starts one, often a copy of this program in another role, exchanges JSON
// messages with it over its standard input and output, and stops, resumes and ends it.
//
// No child is left behind. The parent kills its child, which works on stopped processes as well. If the parent itself
// is killed, the kernel ends the child. On Linux the kernel sends SIGKILL to the children. Elsewhere each child has its
// own process group, and POSIX makes the kernel resume a stopped group that lost its parent, with SIGHUP, which ends
// it. A running child sees the end of its standard input. A child that has to clean up first has its own session and
// ends only when its standard input does ([Spec.Outlives]).
package process
