package fence

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5/pgconn"
)

// serverError finds what the server answered in the chain of err, whichever driver put it there:
// pgx's own error, or any other that tells its SQLSTATE, as lib/pq's does. Of such another one
// only what this package looks at is known. Its severity may be in the server's language, and is then
// no word that counts: the SQLSTATE decides.
func serverError(err error) (*pgconn.PgError, bool) {
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

// textField reads a field of a driver's error type: there is no method for it that drivers agree
// on, and the field's name is what the protocol's documentation calls it. "" where there is none.
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

// sqlConnEnded reports whether database/sql says of a connection that it is of no use any more.
// That is no proof that nothing was sent: see [UpdateSQL].
func sqlConnEnded(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// sqlNeverSent reports whether database/sql refused by itself.
func sqlNeverSent(err error) bool { return errors.Is(err, sql.ErrConnDone) }
