package pgsql

// A router that balances reads may send one to a standby, which lags behind: the value read there, or the missing row,
// says nothing about the primary. So each read-only statement whose answer matters checks in its WHERE whether a
// standby answers, and fails as a whole on a standby. It fails through a cast, as with stamps (see [Builder.Stamped]),
// in a subquery of its own, which is evaluated once before any row is read, even if none match. A router that sends
// statements with volatile functions to the primary, as Pgpool-II does, sends these there.
const (
	StandbyMark = "fencepost:standby"
	OnPrimary   = `(SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.concat('` + StandbyMark +
		`', pg_catalog.pg_is_in_recovery())::boolean ELSE true END)`
)
