// Package measure finds out what each way of coordinating costs while nothing goes wrong: how many operations it does, how long
// one takes, how often it asks which server, and how many connections it holds while it waits.
//
// Modes are measured in turns, in short slices, as internal/bench/measure does it, since machines drift.
package measure
