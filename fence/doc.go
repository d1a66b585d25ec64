// Package fence is the PostgreSQL side of fencepost: it makes the database refuse the writes of a
// worker that has been overtaken, whatever that worker believes about its lease.
//
// # What is guaranteed, by what, and what is not
//
// A fence is one row of fencepost.fence per resource: the highest token claimed for it, and the nonce of that claim.
// [Raise] makes a claim by raising the fence to a strictly higher token. [Enter] puts the comparison of fence and
// claim, the guard, inside the caller's transaction. After the claim of a token has committed, no guarded transaction
// under a lower token commits. This depends on PostgreSQL's row locks alone, and not on anything that a client does,
// sees or measures.
//
// The row level is weaker: [Update] with a bare token compares it with the token in the row. The
// tokens accepted for a row rise, but until the new holder has touched the row, the old one may
// still write there.
//
// The table level covers every writer, psql included: fencepost.protect installs a trigger that lets a row change only
// in a transaction that has entered the row's resource under a claim that the fence still carries. This package reports
// a refusal as [ErrStale], with a *StaleError or a [NotEnteredError]. [Verify] reports whether the triggers are still
// in place.
//
// Nothing is promised for a database that loses committed transactions (asynchronous failover, fsync off, a restore
// from backup), or for effects outside the database.
//
// # Who is authoritative
//
// PostgreSQL is. The package reads no clock and knows nothing about leases: a [Claim] is a plain value. An ErrStale of
// this package comes from the database itself.
//
// # How claim and guard meet
//
//	claim (exclusive)                        guard (shared)
//	  gate: advisory lock, exclusive           gate: advisory lock, shared
//	  UPDATE fence … WHERE token < new         SELECT … FROM fence … FOR SHARE
//	  COMMIT                                   the caller's writes
//	                                           COMMIT
//
// The row lock is the proof: a guard that holds it makes the claim wait, and a guard that comes after the claim finds
// another token. The advisory lock is a gate, a fair queue in front of the row. Without it, overlapping guards would
// starve a claim, because PostgreSQL grants share locks ahead of a waiting writer.
//
// # Over database/sql
//
// [EnterSQL], [UpdateSQL] and [RaiseSQL] do the same over any driver of database/sql, and therefore under any ORM on
// top of it. The package recognises a server's answer by its SQLSTATE alone, which it reads from any error that reports
// one. So [GuardError], [CommitError] and [SafeToRetry] work there too.
//
// # When things fail
//
// If the connection ends during a write, the error is ErrOutcomeUnknown, never success and never a plain failure. A
// claim may simply be made again, because the fence recognises the claim's nonce. Serialization failures and deadlocks
// stay visible to [SafeToRetry]; nothing is retried inside a transaction that the caller owns.
package fence
