package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes of this package. Compare with errors.Is.
var (
	// ErrInvalid: it cannot work as it stands: a name or option out of range, before anything is sent; a pooler
	// between this process and PostgreSQL, found when the session was opened, before any lock was taken.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: PostgreSQL could not answer, or refused for reasons of its own. It says nothing about who holds the
	// lease.
	ErrUnavailable = token.ErrUnavailable
	// ErrHeld: somebody else holds the lease. The error is a *HeldError.
	ErrHeld = token.ErrHeld
	// ErrLost: this handle no longer owns the lease. The error is a *LostError.
	ErrLost = token.ErrLost
	// ErrReleased stands behind ErrLost where the holder itself released the lease.
	ErrReleased = token.ErrReleased
)

// HeldError says who holds a lease. It has no TTL: an advisory lock ends with its session.
type HeldError = token.HeldError

// LostError says why a handle no longer owns its lease.
type LostError = token.LostError

// The reasons for which a lease is lost.
const (
	// ReasonSession: the connection ended: PostgreSQL closed the session, or the network did; Err has its words.
	ReasonSession token.Reason = "session ended"
	// ReasonUnreachable: PostgreSQL did not answer in time.
	ReasonUnreachable token.Reason = "server unreachable"
	// ReasonClock: nothing was heard of PostgreSQL for longer than the TTL, by the clock that says the most: this process or its host
	// was stopped, or the wall clock stepped forward.
	ReasonClock token.Reason = "clock"
	// ReasonReleased: the holder released it.
	ReasonReleased token.Reason = "released"
)

// doubt is why a session had to be given up.
type doubt struct {
	reason token.Reason
	err    error
}

func (d *doubt) Error() string { return fmt.Sprintf("%s: %v", d.reason, d.err) }

func (d *doubt) Unwrap() error { return d.err }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// unavailable says that PostgreSQL could not be asked, and shows the end of ctx where that is why.
func unavailable(ctx context.Context, verb, resource string, err error) error {
	if why := (*doubt)(nil); errors.Is(err, ErrInvalid) && errors.As(err, &why) {
		return why.err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(err, ended)
	}
	return fmt.Errorf("%w: %s %q: %w", ErrUnavailable, verb, resource, err)
}

// answered reports whether err is PostgreSQL's answer to a statement, after which the session goes on.
func answered(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.SeverityUnlocalized == "ERROR"
}
