package fence

import "slices"

// checkNew is checkWrite for a row that may not be there yet: its key is given as the key alone.
func (t Table) checkNew(key Key, set Set) error {
	if err := t.checkWrite(key, set); err != nil {
		return err
	}
	for _, column := range t.Key {
		if _, twice := set[column]; twice {
			return invalidf("column %q is part of the key of %s and stands in the set as well", column, t)
		}
	}
	return nil
}

// sortedColumns gives one text per set of columns, for the statement cache.
func sortedColumns(set Set, room []string) []string {
	for column := range set {
		room = append(room, column)
	}
	slices.Sort(room)
	return room
}

// insert builds INSERT INTO … VALUES … ON CONFLICT (key) DO NOTHING: of all constraints, only the key's is an
// outcome of its own.
func (t Table) insert(key Key, set Set, tok int64) statement {
	var r room
	var names [8]string
	sql, args := t.appendInsert(r[:0], key, set, sortedColumns(set, names[:0]), tok)
	sql = append(sql, " DO NOTHING"...)
	return statement{sql: string(sql), args: args}
}

// upsert builds INSERT INTO … ON CONFLICT (key) DO UPDATE, which compares the token of the row that is there.
func (t Table) upsert(key Key, set Set, tok int64) statement {
	var r room
	var names [8]string
	columns := sortedColumns(set, names[:0])
	sql, args := t.appendInsert(r[:0], key, set, columns, tok)
	sql = append(sql, " DO UPDATE SET "...)
	for i, column := range columns {
		sql = append(appendName(sql, column), " = "...)
		sql = append(appendArg(sql, 1+len(key)+i+1), ", "...)
	}
	sql = append(appendName(sql, t.TokenColumn()), " = $1::bigint WHERE stored."...)
	sql = append(appendName(sql, t.TokenColumn()), " <= $1::bigint"...)
	return statement{sql: string(sql), args: args}
}

// appendInsert appends what insert and upsert share. The arguments are the token, the key, the columns.
func (t Table) appendInsert(sql []byte, key Key, set Set, columns []string, tok int64) ([]byte, []any) {
	args := append(append(make([]any, 0, 1+len(key)+len(set)), tok), key...)
	sql = append(appendName(append(sql, "INSERT INTO "...), t.Schema, t.Name), " AS stored ("...)
	sql = appendName(sql, t.TokenColumn())
	for _, column := range t.Key {
		sql = appendName(append(sql, ", "...), column)
	}
	for _, column := range columns {
		sql = appendName(append(sql, ", "...), column)
		args = append(args, set[column])
	}
	sql = append(sql, ") VALUES ($1::bigint"...)
	for i := range len(args) - 1 {
		sql = appendArg(append(sql, ", "...), i+2)
	}
	sql = append(sql, ") ON CONFLICT ("...)
	for i, column := range t.Key {
		if i > 0 {
			sql = append(sql, ", "...)
		}
		sql = appendName(sql, column)
	}
	return append(sql, ')'), args
}

// remove builds the guarded DELETE.
func (t Table) remove(key Key, tok int64) statement {
	var r room
	args := append(append(make([]any, 0, 1+len(key)+guardArgs), tok), key...)
	sql := t.appendWhere(appendName(append(r[:0], "DELETE FROM "...), t.Schema, t.Name), 1)
	sql = append(appendName(append(sql, " AND "...), t.TokenColumn()), " <= $1::bigint"...)
	return statement{sql: string(sql), args: args}
}

// lock builds the SELECT that reads a row and keeps it from everybody else, unless its token is above tok.
func (t Table) lock(key Key, columns []string, tok int64) statement {
	var r room
	args := append(append(make([]any, 0, 1+len(key)), tok), key...)
	sql := append(append(append(r[:0], "SELECT "...), quoteAll(columns)...), " FROM "...)
	sql = t.appendWhere(appendName(sql, t.Schema, t.Name), 1)
	sql = append(appendName(append(sql, " AND "...), t.TokenColumn()), " <= $1::bigint FOR UPDATE"...)
	return statement{sql: string(sql), args: args}
}
