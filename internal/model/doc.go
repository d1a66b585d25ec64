// Package model is a model of the protocol that joins Redis's leases and PostgreSQL's fence, searched state by state.
//
// Two Redis nodes replicate without waiting. Either may be promoted while the other goes on (split brain), follow the
// other again (which discards what it had), and lose a counter, a lease or both at any time: that stands for the end of
// a TTL, eviction, a flush, a restart, an older snapshot and a step of the clock. Clients talk to any node that takes
// writes. A reply may be lost, and then the client asks again, or goes away.
//
// Workers acquire, claim, write and release, in all ways in which this library does it: with the claim in a transaction
// of its own, or folded into the one that writes; reading before the transaction or in it. Each may stand still for any
// time in front of each step, so there is no clock: a worker in the model never notices that its lease is over. That is
// more than the protocol must survive.
//
// The search visits every state within its bounds and looks for one in which a promise is broken:
//
//   - I1, I2: a claim that commits is above each one that was committed before, or is that same claim again;
//   - I3: a guarded write that commits is under the latest claim;
//   - I5: from each state, once faults end, open transactions have ended and leases have run out, the next worker has
//     its claim after two tries at most;
//   - I7: between what a worker reads under its claim and its write there is no write of another;
//   - a row's token never falls.
//
// I4 is that all of this holds whatever Redis loses. Each rule of the protocol can be left out, and the tests show
// which promise then breaks. Models of a hand-off and of a quorum
// are in package lease.
//
// Not in the model: time (I6), the ledger (I8), a PostgreSQL that loses a committed claim.
package model
