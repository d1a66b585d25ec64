package pgerr

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5/pgconn"
)

// ServerError finds the server's error in the chain of err, whichever driver put it there: pgx's own error, or any
// other that reports its SQLSTATE, as lib/pq's does. Of another driver's error only the fields that this package uses
// are filled. Its severity may be in the server's language and then does not count: the SQLSTATE decides.
func ServerError(err error) (*pgconn.PgError, bool) {
	if err == nil {
		return nil, false
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server, true
	}
	var other interface {
		error
		SQLState() string
	}
	if !errors.As(err, &other) {
		return nil, false
	}
	severity := textField(other, "Severity")
	return &pgconn.PgError{
		Code: other.SQLState(), Message: other.Error(), Detail: textField(other, "Detail"),
		Severity: severity, SeverityUnlocalized: severity, Routine: textField(other, "Routine"),
	}, true
}

// textField reads a field of a driver's error type. Drivers agree on no method for it, but name the field as the
// protocol's documentation does. It returns "" if there is no such field.
func textField(err error, name string) string {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return ""
	}
	field := v.FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.String {
		return ""
	}
	return field.String()
}

// sqlConnEnded reports whether database/sql says that a connection is no longer usable. That does not prove that
// nothing was sent: see [UpdateSQL].
func sqlConnEnded(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// sqlNeverSent reports whether database/sql itself refused the call.
func sqlNeverSent(err error) bool { return errors.Is(err, sql.ErrConnDone) }
