package pgsql

// A row count does not prove the stamp: a BEFORE trigger can put the old token back. So each statement that stamps
// checks, in its RETURNING, the token in the row, and fails as a whole if it is another one. It fails through a cast,
// because a role that writes with bare tokens may have no right on any function of fencepost's. The text that cannot be
// cast is this library's own: PostgreSQL repeats it in its message, in any language.

// StampMark begins the text that cannot be cast.
const StampMark = "fencepost:stamp:"

// Stamped appends the expression that is 0 if the row carries the statement's token, which is its first argument.
// prefix is the row's alias and a dot, or nothing.
func (b Builder) Stamped(prefix, column string) Builder {
	b = b.Text("CASE WHEN ", prefix).Name(column).Text(" = $1::bigint THEN 0 ELSE pg_catalog.concat('" + StampMark + "', ")
	return b.Text(prefix).Name(column).Text(")::bigint END")
}

// ReturningStamped appends RETURNING with columns, each under its own name, from rows that carry the stamp. Only the
// first of them checks the stamp, because the others are never returned without it.
func (b Builder) ReturningStamped(prefix, stamp string, columns []string) Builder {
	b = b.Text(" RETURNING CASE WHEN ").Stamped(prefix, stamp).Text(" = 0 THEN ", prefix).Name(columns[0])
	b = b.Text(" END AS ").Name(columns[0])
	if len(columns) == 1 {
		return b
	}
	return b.Text(", ").Names(prefix, columns[1:])
}
