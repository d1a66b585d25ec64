// Package pgrow writes single rows: with a bare token, fenced by the row alone, or under a claim, with the guard in the
// statement or in front of it. If a write changed nothing, a second statement finds out why.
package pgrow
