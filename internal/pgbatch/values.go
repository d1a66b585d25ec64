package pgbatch

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// Rows are sent as one array per column, each in PostgreSQL's text form of an array. That costs no more than the binary
// form, and every value can be sent this way in every mode of pgx: values that are arrays themselves, and types that
// pgx does not know (enums, extension types). The statement casts the elements to the column's type.
type arrayKind string

const (
	integers arrayKind = "pg_catalog.int8[]"
	texts    arrayKind = "pg_catalog.text[]"
)

// array is the values of one column.
type array struct {
	kind arrayKind
	text string
}

// Limits of one statement. The server refuses a message above 1 GB; well before that it costs memory on both sides.
const (
	partRows  = 10_000
	partBytes = 16 << 20
)

// part is the rows of one statement.
type part struct {
	places []int // in the batch
	keys   []array
	sets   []array
}

// encoder makes the arrays of rows.
type encoder struct {
	batch *Batch
	codec *pgtype.Map
	room  []byte
}

// arrayWriter writes one array out.
type arrayWriter struct {
	column pgtable.Column
	kind   arrayKind
	text   []byte
}

func (e *encoder) writers(names []string, places []int, first func(column int) any) []arrayWriter {
	writers := make([]arrayWriter, len(names))
	for i, name := range names {
		column, kind := e.batch.writer.columns[name], texts
		if _, number := asInteger(first(i)); number && isInteger(column.BaseOID) {
			kind = integers
		}
		writers[i] = arrayWriter{column: column, kind: kind, text: make([]byte, 0, 16+12*len(places))}
	}
	return writers
}

// cut returns as many of the rows as fit into one part.
func (e *encoder) cut(places []int) (part, error) {
	p := part{places: places[:min(len(places), partRows)]}
	row := e.batch.rows[places[0]]
	keys := e.writers(e.batch.writer.table.Key, p.places, func(i int) any { return row.Key[i] })
	sets := e.writers(e.batch.names, p.places, func(i int) any { return row.Set[e.batch.names[i]] })
	for n, place := range p.places {
		row := e.batch.rows[place]
		size := 0
		for i := range keys {
			if err := e.add(&keys[i], row.Key[i]); err != nil {
				return part{}, err
			}
			size += len(keys[i].text)
		}
		for i := range sets {
			if err := e.add(&sets[i], row.Set[e.batch.names[i]]); err != nil {
				return part{}, err
			}
			size += len(sets[i].text)
		}
		if size > partBytes {
			p.places = p.places[:n+1]
			break
		}
	}
	p.keys, p.sets = arraysOf(keys), arraysOf(sets)
	return p, nil
}

// keysOf returns only the keys of rows, which all fit into one statement.
func (e *encoder) keysOf(places []int) ([]array, error) {
	row := e.batch.rows[places[0]]
	keys := e.writers(e.batch.writer.table.Key, places, func(i int) any { return row.Key[i] })
	for _, place := range places {
		for i := range keys {
			if err := e.add(&keys[i], e.batch.rows[place].Key[i]); err != nil {
				return nil, err
			}
		}
	}
	return arraysOf(keys), nil
}

func arraysOf(writers []arrayWriter) []array {
	arrays := make([]array, len(writers))
	for i, w := range writers {
		arrays[i] = array{w.kind, string(append(w.text, '}'))}
	}
	return arrays
}

// add writes one element. A string is sent unchanged, as when pgx sends one by itself. Text in an integer column is
// left to PostgreSQL to parse, which accepts what it would accept of text by itself.
func (e *encoder) add(w *arrayWriter, value any) error {
	if len(w.text) == 0 {
		w.text = append(w.text, '{')
	} else {
		w.text = append(w.text, ',')
	}
	if n, ok := asInteger(value); ok {
		w.text = strconv.AppendInt(w.text, n, 10)
		return nil
	}
	switch v := value.(type) {
	case nil:
		w.text = append(w.text, "NULL"...)
		return nil
	case string:
		w.text = appendElement(w.text, v)
		return nil
	}
	encoded, err := e.codec.Encode(w.column.BaseOID, pgtype.TextFormatCode, value, e.room[:0])
	switch {
	case err != nil:
		return pgerr.Invalidf("column %q: %w", w.column.Name, err)
	case encoded == nil:
		w.text = append(w.text, "NULL"...)
	default:
		e.room = encoded
		text := string(encoded)
		if w.column.BaseOID == pgtype.IntervalOID {
			text = signed(text)
		}
		w.text = appendElement(w.text, text)
	}
	return nil
}

// signed puts a sign before each number of an interval. Under intervalstyle = sql_standard the sign of the first
// applies to all numbers without one.
func signed(interval string) string {
	fields := strings.Fields(interval)
	for i, field := range fields {
		if field[0] >= '0' && field[0] <= '9' {
			fields[i] = "+" + field
		}
	}
	return strings.Join(fields, " ")
}

// appendElement appends the text of an element, quoted: within quotes only these two characters are special.
func appendElement(array []byte, element string) []byte {
	array = append(array, '"')
	for {
		i := strings.IndexAny(element, `"\`)
		if i < 0 {
			break
		}
		array = append(append(array, element[:i]...), '\\', element[i])
		element = element[i+1:]
	}
	return append(append(array, element...), '"')
}

func isInteger(oid uint32) bool {
	return oid == pgtype.Int2OID || oid == pgtype.Int4OID || oid == pgtype.Int8OID
}

func asInteger(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint8:
		return int64(v), true
	}
	return 0, false
}
