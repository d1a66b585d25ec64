// Package pgsession handles one connection: whether anything can be sent on it, whether it is still usable afterwards,
// which of its commits did not wait for their synchronous standby, a transaction in one round trip, and prepared
// statements without pgx's batches.
package pgsession
