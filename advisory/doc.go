// Package advisory grants leases by PostgreSQL's advisory locks, for programs that have no Redis. Package fencepost joins it with
// the fence (NewAdvisory, NewAdvisoryTx); it can also be used alone.
//
// # What is guaranteed, by what, and what not
//
// While a session of PostgreSQL lasts, nobody else gets the locks that it holds. That is all: sessions are ended by
// administrators, failovers, timeouts and networks, PostgreSQL gives their locks to others at once, and the holder learns of it later.
// In between two believe that they hold the lease. A lease alone excludes nobody for certain; the fence does, with a
// token that is claimed in PostgreSQL and that every guarded write is compared with. An advisory lock numbers
// nothing: a lease has no token until [Lease.Claimed] brings one.
//
// # Who is authoritative for what
//
// PostgreSQL says who holds a lock, by its session. The process counts only what PostgreSQL answered: a lease may be relied on
// from the moment before the last call that was answered, for the TTL less a margin. PostgreSQL is told to end the session
// after the TTL without a word (idle_session_timeout, from version 14 on), so a process that was stopped is overtaken, and knows it when
// it goes on, before it sends anything. Before version 14 it keeps its locks until its connection ends.
//
// # One session per process
//
//	         first use                     opened                        last use, and nobody waits
//	(none) ─────────────▶ being opened ─────────────▶ in use ◀──────────────────────────────▶ kept for Linger ──▶ closed
//	                            │                        │                 next use
//	                            └──────▶ over ◀──────────┘ any doubt: all leases on it are lost
//
// All leases and waiters of a [Locker] share one connection. It is taken out of the pool for good, so the pool's hooks have
// seen it and its limits cannot retire it. Nothing that is asked on it waits for others in the server: a lock is tried, not waited for. So
// an answer that does not come within AnswerWithin is a doubt, as is a lock that turns out not to have been held; then the
// connection is closed, never used again. A session lock excludes nobody in its own session: [Turns] does that in the process.
//
// A connection that leads to a pooler is refused with [ErrInvalid] before anything is locked or set on it: it answers for
// another process id than it gave when the connection was made. PgBouncer's session mode is refused as well.
//
// # Loss
//
// An end of the connection that PostgreSQL or the network tells of is noticed at once, and silence within ProbeEvery and AnswerWithin: 3 s by
// default. Every lease on the session ends, with a *[LostError] as the cause of its context.
//
// # Waiting
//
// Waiters of one process stand in line; the first of them asks. A release tells the other processes by NOTIFY, and who is the first to
// ask has the lock: between processes there is no order, but a process that hands a lock on within itself lets others have a look
// after every eighth time. Nobody tells of a session that ended: waiters look by themselves every LookEvery.
package advisory
