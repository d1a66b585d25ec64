// Package measure measures what each way of coordinating costs while nothing goes wrong: how many operations it does,
// how long one takes, how often it asks which server, and how many connections it holds while it waits.
//
// It measures the modes in turns, in short slices, as package bench/measure does, because machines drift.
package measure
