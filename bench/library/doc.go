// Package library contains the measurements: for each figure, the library's way to do a job and the hand-written way,
// on the same servers, with the same clients and the same arguments.
package library
