// Package advisory grants leases with PostgreSQL's advisory locks, for programs without Redis. Package fencepost
// combines it with the fence (NewAdvisory, NewAdvisoryTx). It can also be used alone.
//
// # What is guaranteed, by what, and what not
//
// While a PostgreSQL session lasts, nobody else gets the locks that it holds. That is all. Sessions are ended by
// administrators, failovers, timeouts and networks; PostgreSQL gives their locks to others at once, and the holder
// learns of it later. In between, two holders believe that they hold the lease. A lease alone does not guarantee
// exclusion. The fence does, with a token that is claimed in PostgreSQL and compared with every guarded write. An
// advisory lock has no number: a lease has no token until [Lease.Claimed] sets one.
//
// # Who is authoritative for what
//
// PostgreSQL says which session holds a lock. The process relies only on what PostgreSQL answered: a lease may be
// relied on for the TTL less a margin, counted from before the last answered call was sent. PostgreSQL is told to end a
// session that sends nothing for the TTL (idle_session_timeout, from version 14 on). So a paused process loses its
// lease, and knows it when it resumes, before it sends anything. Before version 14 it keeps its locks until its
// connection ends.
//
// # One session per process
//
//	         first use                     opened                        last use, and nobody waits
//	(none) ─────────────▶ being opened ─────────────▶ in use ◀──────────────────────────────▶ kept for Linger ──▶ closed
//	                            │                        │                 next use
//	                            └──────▶ over ◀──────────┘ any doubt: all leases on it are lost
//
// All leases and waiters of a [Locker] share one connection. The connection is taken out of the pool for good, so the
// pool's hooks have seen it and the pool's limits cannot retire it. No statement on it waits for others in the server:
// a lock is tried, not waited for. So a reply that does not come within AnswerWithin is a doubt, and so is a lock that
// turns out not to have been held. On any doubt the connection is closed and never used again. A session lock does not
// exclude other goroutines of its own session; a queue in the process does (internal/turns).
//
// A connection through a pooler is refused with [ErrInvalid] before anything is locked or set on it. It is recognised
// because the process id that answers differs from the one given when the connection was made. PgBouncer's session mode
// is refused as well.
//
// PostgreSQL keeps the locks of all sessions in one table with about max_locks_per_transaction × (max_connections +
// max_prepared_transactions) entries. While it is full, statements of every session fail (SQLSTATE 53200). So a session
// takes at most a quarter of it: beyond that an acquire is ErrUnavailable before anything is sent. The bound is per
// session and does not count the locks of others.
//
// # Loss
//
// If PostgreSQL or the network reports the end of the connection, the loss is noticed at once. Silence is noticed
// within ProbeEvery plus AnswerWithin: 3 s by default. Every lease on the session ends, with a *[LostError] as the
// cause of its context.
//
// # Waiting
//
// Waiters of one process queue up, and the first of them asks the server. A release notifies the other processes by
// NOTIFY, and the first one to ask gets the lock. Between processes there is no order, but a process that hands a lock
// on within itself lets other processes look after every eighth time. Nobody notifies waiters of a session that ended:
// they look by themselves every LookEvery.
package advisory
