package pgerr

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/token"
)

// StampError says that a write was accepted but its token did not stay in the row: a trigger, or something else in the
// table that writes its token column, put another value there. Nothing was written. Such a table cannot be fenced,
// because its rows would keep accepting tokens that they have seen, and lower ones. It matches ErrTable, and never
// ErrStale.
type StampError struct {
	Table  string      // schema and name, quoted
	Token  token.Token // the token that the row should carry
	Stored token.Token // the token that it would have carried; 0 for NULL too
}

func (e *StampError) Error() string {
	return fmt.Sprintf("%v: %s: the stamp did not stay: a trigger or a rule of the table keeps %d in the token column "+
		"of a row written with token %d", ErrTable, e.Table, e.Stored, e.Token)
}

// Is reports whether target is [ErrTable].
func (e *StampError) Is(target error) bool { return target == ErrTable }

// stampFrom finds the text of pgsql.Builder.Stamped in the server's error.
func stampFrom(server *pgconn.PgError) (*StampError, bool) {
	if server.Code != CodeInvalidText {
		return nil, false
	}
	_, rest, ok := strings.Cut(server.Message, pgsql.StampMark)
	if !ok {
		return nil, false
	}
	digits, _, _ := strings.Cut(rest, `"`)
	stored, _ := strconv.ParseInt(digits, 10, 64)
	return &StampError{Stored: token.Token(stored)}, true
}

// interpretCast interprets a text that could not be cast, if it is one of this library's own.
func interpretCast(verb string, server *pgconn.PgError, err error) error {
	if stamp, ok := stampFrom(server); ok {
		return stamp
	}
	if strings.Contains(server.Message, pgsql.StandbyMark) {
		return fmt.Errorf("%w: %s: a standby answered, and what it has may be old: %w", ErrUnavailable, verb, err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
