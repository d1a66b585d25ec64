// Package servers opens the PostgreSQL and the Redis whose addresses a command was given.
//
// No error of this package repeats an address, because an address may contain a password.
package servers
