// Package pgerr turns the errors of a driver or the server into the outcomes of this library: sentinels, typed errors,
// and the function that decides between them. It uses SQLSTATEs and never matches another program's message texts.
// Package fence and the root package export its errors under their own names.
package pgerr
