// Package check decides whether a history keeps what the library promises.
//
// Each check is a pure function over a history. Its verdict has three values: the promise holds, it is broken, or the
// history does not decide, because it lacks what the check needs or because the search took too long. The folder
// testdata has a good and a bad history for each check.
package check
