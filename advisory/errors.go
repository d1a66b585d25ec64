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
	// ErrInvalid: it cannot work as configured. Either a name or option is out of range, found before anything is sent;
	// or a pooler stands between this process and PostgreSQL, found when the session is opened, before any lock is
	// taken.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: PostgreSQL could not answer, or refused for reasons of its own. It says nothing about who holds the
	// lease.
	ErrUnavailable = token.ErrUnavailable
	// ErrHeld: somebody else holds the lease. The error is a *HeldError.
	ErrHeld = token.ErrHeld
	// ErrLost: this handle no longer owns the lease. The error is a *LostError.
	ErrLost = token.ErrLost
	// ErrReleased: wrapped by ErrLost if the holder itself released the lease.
	ErrReleased = token.ErrReleased
)

// HeldError says who holds a lease. It has no TTL: an advisory lock ends with its session.
type HeldError = token.HeldError

// LostError says why a handle no longer owns its lease.
type LostError = token.LostError

// The reasons for which a lease is lost.
const (
	// ReasonSession: the connection ended, because PostgreSQL or the network closed it; Err says how.
	ReasonSession token.Reason = "session ended"
	// ReasonUnreachable: PostgreSQL did not answer in time.
	ReasonUnreachable token.Reason = "server unreachable"
	// ReasonClock: PostgreSQL had not answered for longer than the TTL, by the clock that reports the most: this
	// process or its host was paused, or the wall clock stepped forward.
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

// unavailable reports that PostgreSQL could not be asked. If that is because ctx ended, the error matches its end.
func unavailable(ctx context.Context, verb, resource string, err error) error {
	if why := (*doubt)(nil); errors.Is(err, ErrInvalid) && errors.As(err, &why) {
		return why.err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	return fmt.Errorf("%w: %s %q: %w", ErrUnavailable, verb, resource, err)
}

// answered reports whether err is PostgreSQL's reply to a statement, after which the session continues.
func answered(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.SeverityUnlocalized == "ERROR"
}
