// Package report is what a comparison found, and how it is shown: as JSON for programs, as tables on a
// terminal, as one page of HTML, and as the tables of docs/comparison.md.
//
// It measures nothing and judges nothing: every figure that it shows is one that somebody counted. It imports
// nothing of the packages that count, so that each of them may fill a Report.
package report
