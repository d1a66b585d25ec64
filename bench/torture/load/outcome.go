package load

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// unknown is the name of the one outcome that is no refusal.
const unknown = "unknown"

// names are the library's outcomes, and what they are called in a history. The first that matches counts.
func names() []struct {
	err  error
	name string
} {
	return []struct {
		err  error
		name string
	}{
		{fencepost.ErrOutcomeUnknown, unknown},
		{fencepost.ErrStale, "stale"},
		{fencepost.ErrLost, "lost"},
		{fencepost.ErrHeld, "held"},
		{fencepost.ErrTokenRegressed, "regressed"},
		{fencepost.ErrNotFound, "not found"},
		{fencepost.ErrExists, "exists"},
		{fencepost.ErrRefused, "refused"},
		{fencepost.ErrBadKey, "bad key"},
		{fencepost.ErrUnavailable, "unavailable"},
		{redislock.ErrNotObtained, "held"},
	}
}

// outcomeOf returns what an error says of an operation. The library says by its own error that an outcome is unknown.
// Without the library, only an error of PostgreSQL's says that nothing was written.
func outcomeOf(err error, fenced bool) (outcome history.Outcome, name string) {
	if err == nil {
		return history.OK, ""
	}
	for _, n := range names() {
		if errors.Is(err, n.err) {
			if n.name == unknown {
				return history.Unknown, n.name
			}
			return history.Refused, n.name
		}
	}
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server):
		return history.Refused, "SQLSTATE " + server.Code
	case !fenced:
		return history.Unknown, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return history.Refused, "time is up"
	}
	return history.Refused, err.Error()
}

// mistaken reports whether an error is a mistake of this program's. The work cannot go on then.
func mistaken(err error) bool {
	return errors.Is(err, fencepost.ErrInvalid) || errors.Is(err, fencepost.ErrHeldByCaller) ||
		errors.Is(err, fencepost.ErrKeyReused) || errors.Is(err, fencepost.ErrTable)
}
