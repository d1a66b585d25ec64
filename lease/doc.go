// Package lease grants time-bound leases in Redis, each with a fencing token that rises from grant
// to grant of a resource.
//
// The guarantee: while Redis keeps its data and clocks run at a bounded rate, at most one holder at a time believes
// that it holds a resource, and each holder learns of its loss before Redis can grant the lease to another. The package
// does not guarantee that a paused holder notices in time, or that Redis keeps its data. The fence makes work on
// PostgreSQL safe: it refuses a write whose token has been overtaken. A lease alone does not guarantee exclusion.
//
// # Who is authoritative for what
//
// Redis orders the grants. The lease key says who holds the resource. The counter key outlives every lease and says
// which token was issued last. The holder's own clocks say when it must stop. PostgreSQL, through packages fence and
// fencepost, says which token counts: [Lease.Reissue] replaces a token that the fence refuses.
//
// # States
//
//	          acquire                    renew
//	(none) ─────────────▶ held ◀───────────────────┐
//	                       │ ├─────────────────────┘
//	        Release        │ │  deadline passed, key gone, key taken, clock stepped
//	released ◀─────────────┘ └─────────────▶ lost
//
// Both end states are final. The lease's context ends with the lease, and its cause says why.
//
// # The trust window
//
// A lease may be relied on for its TTL less [DriftMargin]. That time counts from the moment *before* the acquire, or
// the last confirmed renewal, was sent. Counting from before the call makes a slow reply harmless: however long the
// reply took, Redis started the TTL later than the holder did. A reply that arrives after the deadline is a loss,
// whatever it says. Elapsed time is the largest of what the monotonic clock, the time since boot and the wall clock
// report, because the first stands still while a virtual machine is suspended and the last can be stepped.
//
// # What happens in a term
//
// Between grant and end the keeper renews the lease at a third of its TTL (AcquireOptions.RenewEvery). One renewal is
// in flight at a time. A failed renewal is retried for as long as time remains. A renewal never creates a key. Neither
// a renewal nor a release touches a key that carries another holder's nonce. No call is sent past the deadline, except
// the release that cleans up.
//
// # Waiting
//
// Waiters for one resource stand in a queue in Redis, first come, first served. A release reserves the lease for the
// head of the queue and notifies it. Over a *redis.Client the reservation is a short lease under the head's own nonce,
// and the message carries the grant. The head returns at once and confirms in the background, which gives the lease its
// TTL; until then [Lease.Remaining] is short. If the server does not answer the confirmation in time, the lease is
// lost. The trust window of such a lease begins with the waiter's last answered request, moved on by the time that the
// server says has passed since. If that cannot be known, the head confirms before it returns. On a cluster, with a
// Durability or a Floor, the head sends its own acquire instead. A reservation lasts for twice the round trip that the
// waiter has measured, between 200 ms and 10 s; one that is a grant, for 1 s at least. Nobody polls. A waiter also
// watches the holder's TTL with a timer, in case the holder dies, and looks at least every 25 s, in case a message is
// lost.
//
// Waiters may fall silent while their connections stay open: their host lost power, or was cut off. If nobody comes for
// a reservation, the second waiter in the queue, or the process that released, calls the roll. All waiters are notified
// at once, the queue starts empty, and those that live rejoin it in the places they had. So a free lease reaches a live
// waiter within 2 s, however many silent ones stand before it. If round trips take longer than 100 ms, it does so
// within ten of the longest round trips. There are two exceptions. If the head, the second waiter and the process that
// released are all silent or dead, the next look of some waiter finds the lease, after 25 s at most. After a holder
// that died without a release, the time counts from the end of its TTL. A waiter whose subscription is cut when its
// turn comes loses the turn but keeps its place. A waiter loses its place if it never learned it, because none of its
// attempts was answered before another process called the roll; it then stands last.
//
// # When things fail
//
// A lost reply to an acquire is recognised by its nonce. If the acquire is retried, Redis returns the same token; if
// not, the key is removed. An error reply from Redis (READONLY, OOM, LOADING) is ErrUnavailable and never ErrHeld. If
// Redis loses its data, the holders lose their leases and the counters lose their values; under a fence the next grant
// is raised above every token claimed. A key that another program wrote, or one without a TTL, is ErrBadKey, because
// waiting for it would never end.
package lease
