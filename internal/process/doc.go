// Package process starts, stops, resumes and ends child processes that talk over their standard input and output.
//
// No child is left behind. Its parent kills it, which works on stopped processes as well. Should the parent itself be
// killed: on Linux the kernel then sends SIGKILL to its children; elsewhere children have a process group each, and
// POSIX has the kernel resume a stopped group that lost its parent, with SIGHUP, which ends it. A child that runs sees the
// end of its standard input.
package process
