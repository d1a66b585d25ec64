// Package checks looks at the servers of a deployment, and at this host, and says what is set up otherwise than this
// library recommends.
//
// # Levels
//
//	ok       it is as it should be
//	warning  leases or work may be lost that need not be, or something grows; nobody is refused wrongly
//	fault    a promise does not hold, or work fails
//	skipped  it could not be looked at, and why: a right is missing, the server refuses the question (managed servers
//	         do), or another check found what has to be mended first
//
// # What the checks do to the servers
//
// In PostgreSQL they only read. In Redis they try the commands that a store sends, on keys of a random name in the
// namespace, which they delete; the keys also have a TTL. No lease, fence or row is touched.
//
// No result has a secret in it: no password, no nonce, no address with a user in it.
package checks
