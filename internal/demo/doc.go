// Package demo plays the story that fencepost exists for, on real servers and with real processes, and
// checks how it ends.
//
// Worker A takes the lease of an invoice and reads its row. The operating system stops A (SIGSTOP) until
// its lease has run out; worker B takes over with a higher token, writes and finishes; A goes on
// (SIGCONT) and writes what it had in mind, without a look at its lease. Two plays differ in nothing
// but the write:
//
//   - unfenced: a plain UPDATE, and B's result is overwritten;
//   - fenced: an UPDATE behind fence.Guard, and PostgreSQL refuses A.
//
// Each play has a database and a namespace of its own on the servers it is given, and removes both.
//
// # Who does what
//
// The director ([Run]) sets the stage, starts the workers, stops and resumes A, and reads the row. A
// worker ([RunWorker]) is another process of the same program. Director and worker talk in lines of
// JSON over the worker's standard input and output: script and cue one way, reports the other.
//
// # No process is left behind
//
// The director kills every worker it has started when it returns, an error or a
// panic included. Should the director itself be killed, the kernel sees to its workers (see package process). What a killed director cannot remove are a play's database and, for a day, its counter in
// Redis; that matters only on servers that stay.
package demo
