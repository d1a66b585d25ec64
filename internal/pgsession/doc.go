// Package pgsession handles one connection: whether anything can be sent on it, whether it is still usable afterwards,
// which of its commits did not wait for their synchronous standby, and a transaction in one round trip.
package pgsession
