// Package cell runs one cell of a torture run: one workload in one mode under some faults, on servers of its own, and
// checks its history.
package cell
