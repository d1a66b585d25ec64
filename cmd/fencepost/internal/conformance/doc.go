// Package conformance finds out by experiment whether a PostgreSQL and a Redis do what this library relies on. It is
// for servers on which nobody has tried the library: another version, a managed service, or a server that only speaks
// the protocol.
//
// # What is tried, with what
//
// A check tries one thing that must hold, for example that an UPDATE that waited for a row evaluates its WHERE again.
// It uses the library itself: packages fence, lease and advisory, and the SQL of the migrations, which it runs in a
// schema of another name. Documents and version numbers count for nothing.
//
// # What a verdict means
//
//	ok         it was tried, and held
//	failed     it was tried, and did not hold; Why has the server's own words
//	not tried  it needs another check that failed, or it belongs to one part of the library, which this server
//	           cannot serve
//
// A check that passes is no proof, because it is one run of one interleaving. A check that fails is a proof.
//
// # What is left behind
//
// Nothing. In PostgreSQL the checks create everything in two schemas with random names, and drop these at the end,
// however the run ends. In Redis they delete their keys, which have random names and also a TTL. After a kill -9 the
// schemas stay: their names begin with fencepost_check_.
package conformance
