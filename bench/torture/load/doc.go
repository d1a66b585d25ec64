// Package load is the worker of a torture run: a process that does random operations through the library's public API
// and records each with its outcome.
//
// A [Mode] says how work is coordinated. All but [Lock] use the library. Lock is the control: a Redis lock and plain
// writes, which lose updates as soon as a worker is paused for longer than the lock lasts.
//
// A [Workload] says what the operations are. Operations are drawn from the run's seed, the worker's number, its life
// and its thread, so that the same seed gives each thread the same operations.
package load
