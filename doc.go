// Package fencepost lets services write to shared PostgreSQL rows so that the database itself refuses
// a worker that was paused, lost its lease, and woke up.
//
// A [Store] grants leases over Redis. Each grant carries a fencing token that rises per resource, and is
// claimed in PostgreSQL before the lease is handed out. Every write under the lease travels with a guard,
// in its own transaction, that compares the claim with the fence; once a newer claim has committed,
// no guarded write under an older token commits any more.
//
//	err := store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = $2`, "paid", "2026-11")
//		return err
//	})
//
// # What is guaranteed, by what, and what not
//
// PostgreSQL's row locks guarantee that tokens are claimed once, that they rise, and that nothing guarded
// is written under an overtaken one; Redis may lose, forget or mix up anything without touching that. The
// lease gives early notice and keeps workers out of each other's way; it alone excludes nobody for
// certain. Not guarded are: writers that do not pass through the guard, effects outside PostgreSQL,
// and databases that lose committed transactions.
//
// # Without Redis
//
// [NewAdvisory] makes a Store whose leases are session-level advisory locks of PostgreSQL, for a few processes that have no Redis. One
// that is stopped is overtaken after its TTL, as with Redis; early notice is weaker, and the fence is the same. [NewAdvisoryTx] makes one
// whose lease is the transaction that the work is done in: the simplest there is where the work is one short transaction.
//
// # Parts
//
// Package lease is the Redis side and package fence the PostgreSQL side; each can be used alone, as can package advisory, and only
// this package joins them. Package migrations creates what the database needs. The outcomes are errors
// of this package, told apart with errors.Is; nil means committed.
package fencepost
