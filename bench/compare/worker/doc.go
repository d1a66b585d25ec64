// Package worker is a process that does operations of package work in one mode, one after the other, and the handle
// with which its parent controls it.
//
// Both write JSON, one message per line. The parent writes a [Config], then orders. The worker writes an [Event] for
// everything that happens. It ends when its standard input ends.
package worker
