// Package demo plays the story for which fencepost exists, on real servers and with real processes, and checks how it
// ends.
//
// Worker A takes the lease of an invoice and reads its row. The operating system stops A (SIGSTOP) until A's lease has
// run out. Worker B takes over with a higher token, writes and finishes. Then A continues (SIGCONT) and writes the
// value that it had computed, without looking at its lease. The two plays differ only in that write:
//
//   - unfenced: the write is a plain UPDATE, and overwrites B's result;
//   - fenced: the write is an UPDATE behind fence.Enter, and PostgreSQL refuses it.
//
// Each play has a database and a namespace of its own on the servers that it is given, and removes both.
//
// # Who does what
//
// The director ([Run]) sets the stage, starts the workers, stops and resumes A, and reads the row. A worker
// ([RunWorker]) is another process of the same program. Director and worker exchange lines of JSON over the worker's
// standard input and output: the director sends the script and the cue, and the worker sends reports.
//
// # No process is left behind
//
// Before the director returns, it kills every worker that it has started, also after an error or a panic. If the
// director itself is killed, the kernel ends its workers (see package process). A killed director leaves a play's
// database and, for a day, its counter in Redis. That matters only on servers that stay.
package demo
