package pgsql

// Statement is SQL and its numbered arguments. It is built for each write: that costs little compared with a round
// trip, and a cache would need an owner.
type Statement struct {
	SQL  string
	Args []any
	// Stamps is the token column if the text still lacks the stamp check: see [Statement.Whole].
	Stamps string
}

// Whole completes the text of a statement that is sent unchanged.
func (s Statement) Whole() Statement {
	if s.Stamps == "" {
		return s
	}
	var r Buffer
	return Statement{SQL: Builder(r[:0]).Text(s.SQL).Returning(s.Stamps).String(), Args: s.Args}
}

// Returning appends the stamp check of a token column, or nothing if there is no column.
func (b Builder) Returning(stamps string) Builder {
	if stamps == "" {
		return b
	}
	return b.Text(" RETURNING ").Stamped("", stamps)
}
