package pgsql

// Statement is SQL and its numbered arguments. It is built for each write: that costs little compared with a round
// trip, and a cache would need an owner.
type Statement struct {
	SQL  string
	Args []any
}

// Returning appends the stamp check of a token column, or nothing if there is no column.
func (b Builder) Returning(stamps string) Builder {
	if stamps == "" {
		return b
	}
	return b.Text(" RETURNING ").Stamped("", stamps)
}
