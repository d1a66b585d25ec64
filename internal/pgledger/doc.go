// Package pgledger records the outcomes of work with an idempotency key, in the transaction that does the work.
package pgledger
