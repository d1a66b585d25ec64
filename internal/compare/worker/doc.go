// Package worker is a process that does operations of package work in one mode, one after the other, and the handle by
// which its parent holds it.
//
// The parent writes a [Config] as one line of JSON, then orders, one a line. The worker writes an [Event] as one line of
// JSON for whatever happens. It ends when its standard input does.
package worker
