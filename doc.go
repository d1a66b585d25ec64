// Package fencepost lets services write to shared PostgreSQL rows so that the database itself refuses a worker that was
// paused, lost its lease, and woke up.
//
//	err := store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = $2`, "paid", "2026-11")
//		return err
//	})
//
// A nil error means committed. [Store.Do] is all that most services need.
//
// # Who is authoritative
//
// Redis says who may work now. It grants a lease to one holder for a limited time, and it numbers the grants of a
// resource. Redis may lose all of that at any moment, and nothing below depends on it.
//
// PostgreSQL says which grant counts. For each resource it keeps a fence: one row with the highest token claimed so
// far. A grant becomes a [Lease] only after its token has been claimed, and a claim succeeds only with a token strictly
// above the fence. A guarded transaction reads the fence under a row lock that it keeps until it ends. It commits only
// if the fence still carries its own claim.
//
// The worker decides nothing. Its lease gives it early notice, which saves work that PostgreSQL would refuse.
//
// # What is guaranteed, and what is not
//
// PostgreSQL's row locks guarantee:
//
//   - A token is claimed once, and the claimed tokens of a resource rise in commit order.
//   - Once a claim has committed, no guarded write under an older token commits.
//   - No other holder's guarded write comes between a read under a lease and a guarded write under the same lease.
//
// The guarantees do not cover writers that bypass the guard (a protected table refuses those, see the SQL function
// fencepost.protect), effects outside PostgreSQL, or databases that lose committed transactions. A lease by itself is
// not certain to exclude anybody. The page docs/safety.md lists every guarantee with its mechanism, its test, and the
// test that shows the damage without it.
//
// # The states of a lease
//
//	                    PostgreSQL refuses the token: lift it, claim again
//	                               ┌───────┐
//	            granted            │       ▼            claimed
//	waiting ─────────────────▶  granted, unclaimed ─────────────────▶  held ──── Release ────▶ released
//	   ▲  (in Redis's queue)           │                                │
//	   │                               │ deadline                       │ deadline, taken, refused as stale, …
//	   └── ctx ends: ErrHeld           ▼                                ▼
//	                                  lost ◀──────────────────────────  lost
//
// [Store.Acquire] returns a lease that is held. [Lease.Context] ends when the lease is lost or released, and its cause
// says which. A lost lease is never held again. Acquire another one.
//
// # The trust window
//
// A holder trusts its lease until a deadline: the moment at which the last confirmed request was sent, plus the TTL,
// less a margin for clocks that run at different rates. The deadline counts from the request and not from the reply,
// because a slow reply says nothing about the time since. Elapsed time is the largest value that three clocks report:
// the monotonic clock, the clock that keeps running during a suspension, and this host's wall clock. No decision
// compares the clocks of two hosts.
//
// If the window was wrong, because the process was stopped or the server's clock jumped, two workers may believe that
// they hold the lease. The fence then decides.
//
// # Work under a lease
//
// [Store.Do] acquires, runs one guarded transaction and releases. [Store.Tx] runs a guarded transaction under leases
// that are held already, [Store.With] runs any work under a lease, and [Once] and [DoOnce] do work that must not be
// done twice. A [Table] reads and writes rows by key, each in one statement that carries its own guard. It stamps each
// row with the token that wrote it. [Table.In] does the same inside a transaction, next to any other SQL, so that a row
// and its outbox event are committed together. Calls under a lease that is over return [ErrLost] without a round trip.
// Calls that PostgreSQL refuses because a newer token has been claimed return [ErrStale].
//
// A transaction that is left idle delays the next holder's claim. PostgreSQL ends it after [Options].MaxIdle.
//
// # When something fails
//
//   - Redis does not answer: [ErrUnavailable] from acquiring. Leases that are held last until their deadline; their
//     transactions do not need Redis.
//   - Redis lost its counter: the next claim is refused once, the token is lifted above the fence, and the claim is
//     made again. The caller sees a longer Acquire; [Events] and the log report it.
//   - PostgreSQL does not answer: ErrUnavailable; nothing was written.
//   - The connection ends at COMMIT: the library asks PostgreSQL, over another connection, whether the transaction was
//     committed. The result is nil or ErrUnavailable. If PostgreSQL cannot tell either, the result is
//     [ErrOutcomeUnknown]. No outcome is guessed.
//   - The worker is paused inside a transaction: PostgreSQL ends it after MaxIdle, and the call returns ErrLost.
//   - Serialization failures and deadlocks: the function runs again under the same token, up to a small number of
//     times.
//
// # Without Redis
//
// [NewAdvisory] makes a [Store] whose leases are session-level advisory locks of PostgreSQL. Early notice is weaker,
// and the fence is the same. [AdvisoryTx] locks, works and commits in one transaction. It is the simplest choice if the
// work is one short transaction. [AdvisoryTable] reads and writes rows in it.
//
// # Parts
//
// Package lease is the Redis side, package fence the PostgreSQL side, and package advisory the locks of PostgreSQL;
// each can be used alone, and only this package combines them. Package migrations creates what the database needs.
// Outcomes are errors of this package; errors.Is tells them apart.
package fencepost
