package mode

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// ErrConflict says that a row has another version than the one that was read. Nothing was written.
var ErrConflict = errors.New("the row has changed since it was read")

// Outcome is the outcome of an attempt, as far as its caller can know.
type Outcome string

// The outcomes.
const (
	Accepted    Outcome = "accepted"    // committed
	Refused     Outcome = "refused"     // by a fence, a lease or a version; nothing was written
	Unknown     Outcome = "unknown"     // the reply to COMMIT did not come
	Unavailable Outcome = "unavailable" // a server did not answer, not in time, or took the work back; nothing was written
	Broken      Outcome = "broken"      // a mistake of this program's; trying again does not help
)

// OutcomeOf returns the outcome that an error of Run means.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Accepted
	case errors.Is(err, fencepost.ErrOutcomeUnknown):
		return Unknown
	case isOneOf(err, ErrConflict, fencepost.ErrStale, fencepost.ErrLost, fencepost.ErrHeld, fencepost.ErrTokenRegressed):
		return Refused
	case isOneOf(err, fencepost.ErrInvalid, fencepost.ErrKeyReused, work.ErrMissing), isMistake(err):
		return Broken
	}
	return Unavailable
}

// RefusedByPostgres reports, for the error of a Refused attempt, whether PostgreSQL refused it, by a token or a
// version. Otherwise the holder noticed by itself that its lease was over, or got no lease.
func RefusedByPostgres(err error) bool {
	return OutcomeOf(err) == Refused && isOneOf(err, ErrConflict, fencepost.ErrStale, fencepost.ErrTokenRegressed)
}

func isOneOf(err error, outcomes ...error) bool {
	return slices.ContainsFunc(outcomes, func(o error) bool { return errors.Is(err, o) })
}

// isMistake reports whether PostgreSQL would return the same error again.
func isMistake(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) || len(server.Code) < 2 {
		return false
	}
	// Unsupported, bad data, a constraint, bad SQL or no right.
	return slices.Contains([]string{"0A", "22", "23", "42"}, server.Code[:2])
}
