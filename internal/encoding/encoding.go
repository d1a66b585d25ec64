// Package encoding checks that a connection to PostgreSQL interprets what this library sends as UTF-8.
//
// The name of a resource, like everything that makes up an identity, is compared byte by byte as the database stores
// it. Under another client_encoding the database would store other bytes, and so have a second fence for the same
// resource.
package encoding

import (
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// Problem says what is wrong with the connection's client_encoding, or returns "". It sends nothing: PostgreSQL reports
// the setting and each change of it. If the server reported no setting, as a server other than PostgreSQL may, Problem
// returns "": the functions of the schema fencepost check for themselves.
func Problem(conn *pgconn.PgConn) string {
	encoding := conn.ParameterStatus("client_encoding")
	if encoding == "UTF8" || encoding == "" || isUTF8(encoding) {
		return ""
	}
	return "the connection's client_encoding is " + encoding + ", and names are UTF-8: " +
		"connect with client_encoding=UTF8"
}

// isUTF8 compares a name as PostgreSQL does. PostgreSQL reports the usual spelling, and a pooler reports the client's.
func isUTF8(encoding string) bool {
	plain := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(encoding))
	return plain == "utf8" || plain == "unicode"
}

// IsText reports whether PostgreSQL's type text can hold s: it is UTF-8 without U+0000.
func IsText(s string) bool { return strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) }
