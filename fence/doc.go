// Package fence is the PostgreSQL side of fencepost: it makes the database refuse the writes of a
// worker that has been overtaken, whatever that worker believes about its lease.
//
// # What is guaranteed, by what, and what not
//
// A fence is one row of fencepost.fence per resource: the highest token claimed for it, and the
// nonce of that claim. [Raise] makes a claim by raising the fence, strictly. [Guard] puts the
// comparison of fence and claim inside the caller's transaction, and [UpdateClaimed] inside its one statement. Once the claim of a token has
// committed, no guarded transaction under a lower token commits any more; this rests on PostgreSQL's
// row locks alone and on nothing that a client does, sees or measures.
//
// The row level is weaker: [Update] with a bare token compares it with the token in the row. The
// tokens accepted for a row rise, but until the new holder has touched the row, the old one may
// still write there.
//
// The table level covers every writer, psql included: fencepost.protect installs a trigger that lets a
// row change only in a transaction that has entered the row's resource under a claim that the fence
// still carries. What it refuses is [ErrStale] here, as a *StaleError or a [NotEnteredError]. [Verify]
// tells whether the triggers still stand.
//
// Nothing is promised for a database that loses committed transactions (asynchronous failover,
// fsync off, a restore from backup), nor for effects outside the database.
//
// # Who is authoritative
//
// PostgreSQL. The package asks no clock and knows nothing of leases: a [Claim] is a plain value. An
// ErrStale from here is the database's own word.
//
// # How claim and guard meet
//
//	claim (exclusive)                        guard (shared)
//	  gate: advisory lock, exclusive           gate: advisory lock, shared
//	  UPDATE fence … WHERE token < new         SELECT … FROM fence … FOR SHARE
//	  COMMIT                                   the caller's writes
//	                                           COMMIT
//
// The row lock is the proof: a guard that holds it keeps the claim waiting, and a guard that comes
// after the claim finds another token. The advisory lock is a gate, a fair queue in front of the
// row: without it overlapping guards would starve a claim, since share locks are granted past a
// waiting writer.
//
// # Over database/sql
//
// [GuardSQL], [UpdateSQL] and [RaiseSQL] do the same over any driver of database/sql, and so under
// any ORM on top of it. What a server answers is known by its SQLSTATE alone, read off any error
// that tells it, so [GuardError], [CommitError] and [SafeToRetry] serve there too.
//
// # When things fail
//
// A connection that ended while a write was under way gives ErrOutcomeUnknown, never success and
// never a plain failure. A claim may simply be made again: its nonce recognises itself. Serialization
// failures and deadlocks stay visible to [SafeToRetry]; nothing is retried inside a transaction that
// the caller owns.
package fence
