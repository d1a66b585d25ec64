// Package lease grants time-bound leases in Redis, each with a fencing token that rises from grant
// to grant of a resource.
//
// What it guarantees, and what not: while Redis keeps its data and clocks run at a bounded rate, at
// most one holder at a time believes that it holds a resource, and each holder learns of its loss
// before Redis can grant the lease to another. It does not guarantee that a holder which was
// stopped notices in time, nor that Redis keeps its data. Work on PostgreSQL is made safe by the
// fence, which refuses what carries an overtaken token; a lease alone excludes nobody for certain.
//
// # Who is authoritative for what
//
// Redis orders the grants: the lease key says who holds the resource, and the counter key, which
// outlives every lease, says which token was issued last. The holder's own clocks say when it must
// stop. PostgreSQL, through packages fence and fencepost, says which token counts: a token that the
// fence refuses is replaced by [Lease.Reissue].
//
// # States
//
//	          acquire                    renew
//	(none) ─────────────▶ held ◀───────────────────┐
//	                       │ ├─────────────────────┘
//	        Release        │ │  deadline passed, key gone, key taken, clock stepped
//	released ◀─────────────┘ └─────────────▶ lost
//
// Both ends are final. The lease's context ends with the state, its cause saying why.
//
// # The trust window
//
// A lease may be relied on from the moment *before* its acquire or its last confirmed renewal was
// sent, for its TTL less [DriftMargin]. Counting from before the call is what makes a slow answer
// harmless: however long it took, Redis started the TTL later than the holder did. An answer that
// arrives after the deadline is a loss, whatever it says. Time is the most that the monotonic clock,
// the time since boot and the wall clock say has passed, since one stands still while a virtual
// machine is suspended and another can be stepped.
//
// # What happens in a term
//
// Between grant and end the keeper renews at a third of the TTL (AcquireOptions.RenewEvery), with
// one renewal under way at a time; a failed one is tried again for as long as time remains. A renewal
// never creates a key, and neither it nor a release touches a key with another's nonce. No call is
// sent past the deadline, except the release that cleans up.
//
// # Waiting
//
// Waiters of one resource stand in a queue in Redis, first come, first served. A release reserves the
// lease for the head and tells it by a message; the head then sends its own acquire, so that its
// trust window begins with its own request. Nobody polls: who waits also watches the holder's TTL by a
// timer, in case the holder dies, and looks every 25 s at the latest, in case a message is lost.
//
// # When things fail
//
// A lost reply to an acquire is recognised by its nonce: asked again, Redis hands back the same
// token, and if nobody asks again the key is removed. Redis answering with an error (READONLY, OOM,
// LOADING) is ErrUnavailable and never ErrHeld. Redis losing its data costs the holders their leases
// and the counters their values; under a fence the next grant is lifted above every token claimed.
// A key that somebody else wrote, or one without a TTL, is ErrBadKey, since waiting for it would
// have no end.
package lease
