// Package report writes what was measured: as a table for people and as JSON for programs.
package report
