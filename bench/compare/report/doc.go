// Package report is the result of a comparison, and the ways to show it: as JSON for programs, as tables on a terminal,
// as one HTML page, and as the tables of docs/comparison.md.
//
// It measures nothing and judges nothing: every figure that it shows was counted elsewhere. It imports none of the
// packages that count, so that each of them may fill a Report.
package report
