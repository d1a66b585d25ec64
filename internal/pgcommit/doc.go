// Package pgcommit commits a transaction, and finds out what became of it if the reply to COMMIT was lost.
package pgcommit
