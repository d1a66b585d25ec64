package otelfencepost

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost-pg/fencepost"
)

// The attributes. Those that the store's log has as well are named as there, after "fencepost.". docs/operating.md
// lists both.
const (
	keyResource  = attribute.Key("fencepost.resource")
	keyResources = attribute.Key("fencepost.resources") // of a transaction under several leases
	keyToken     = attribute.Key("fencepost.token")
	keyFence     = attribute.Key("fencepost.fence")
	keyLabel     = attribute.Key("fencepost.label")      // of whoever overtook
	keyClaimedAt = attribute.Key("fencepost.claimed_at") // when that was, RFC 3339
	keyReason    = attribute.Key("fencepost.reason")
	keyOutcome   = attribute.Key("fencepost.outcome") // of a COMMIT whose reply was lost
	keyTry       = attribute.Key("fencepost.try")

	// Of the semantic conventions.
	keyError    = attribute.Key("error.type")
	keyDatabase = attribute.Key("db.system.name")
	keySQLState = attribute.Key("db.response.status_code")
)

var postgresql = keyDatabase.String("postgresql")

// errorType returns a name for what an error means, out of few.
func errorType(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{fencepost.ErrOutcomeUnknown, "outcome_unknown"}, // first: it may wrap any other
		{fencepost.ErrStale, "stale"},
		{fencepost.ErrHeldByCaller, "held_by_caller"},
		{fencepost.ErrHeld, "held"},
		{fencepost.ErrLost, "lost"},
		{fencepost.ErrTokenRegressed, "token_regressed"},
		{fencepost.ErrBadKey, "bad_key"},
		{fencepost.ErrUnavailable, "unavailable"},
		{fencepost.ErrInvalid, "invalid"},
		{fencepost.ErrNotFound, "not_found"},
		{fencepost.ErrExists, "exists"},
		{fencepost.ErrRefused, "refused"},
		{fencepost.ErrKeyReused, "key_reused"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	if code := sqlState(err); code != "" {
		return code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER" // the semantic conventions' word for an error of another kind
}

// sqlState returns the SQLSTATE of PostgreSQL's error, or "" if there is none.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// outcome returns what [fencepost.Events].Settled was told.
func outcome(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, fencepost.ErrOutcomeUnknown):
		return "unknown"
	}
	return "rolled_back"
}
