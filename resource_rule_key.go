package fencepost

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// rule is a ResourceRule bound to a table.
type rule struct {
	prefix string
	parts  []rulePart
	codec  *keyCodec
}

func (r *rule) columns() []string {
	names := make([]string, len(r.parts))
	for i, part := range r.parts {
		names[i] = part.column
	}
	return names
}

// rulePart is one column of a rule.
type rulePart struct {
	place  int // in the key
	column string
	kind   keyKind
	most   int // characters, for varchar(n); 0 if there is no limit
}

// keyKind is the type of a rule's column, as the OID that pgx encodes for. For a domain it is the base type.
type keyKind uint32

// kindOf returns the kind of a column. It refuses columns that may have several texts for one value.
func kindOf(table string, c pgtable.Column) (keyKind, error) {
	switch c.BaseOID {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TextOID, pgtype.VarcharOID, pgtype.UUIDOID:
	default:
		return 0, &fence.TableError{Table: table, Problem: fmt.Sprintf(
			"column %q of the resource rule is %s, not smallint, integer, bigint, text, varchar or uuid", c.Name, c.Type)}
	}
	if c.Loose {
		return 0, &fence.TableError{Table: table, Problem: fmt.Sprintf(
			"column %q of the resource rule has a nondeterministic collation: "+
				"unequal texts are one key, and would be two resources",
			c.Name,
		)}
	}
	return keyKind(c.BaseOID), nil
}

// resource returns the resource, without the namespace, of the row with a key. In the returned key the rule's values
// are in their plain form. They are sent in that form, so that Go and PostgreSQL use the same values, however a type
// encodes itself. If nothing has to change, the returned key is the caller's own.
//
// The text is appended to buf. Every write runs this code, so it allocates nothing for values of plain types.
func (r *rule) resource(buf []byte, key Key) ([]byte, Key, error) {
	buf = append(buf, r.prefix...)
	own := true // key is the caller's and must not be modified
	for i, part := range r.parts {
		if i > 0 {
			buf = append(buf, '/')
		}
		value := key[part.place]
		text, ok := part.appendPlain(buf, value)
		if !ok {
			normal, err := r.codec.normal(part.kind, value)
			if err != nil {
				return nil, nil, invalidf("key column %q: %w", part.column, err)
			}
			if own {
				key, own = slices.Clone(key), false
			}
			key[part.place] = normal
			text, ok = part.appendPlain(buf, normal)
		}
		if !ok {
			return nil, nil, invalidf("the value does not fit key column %q", part.column)
		}
		if len(r.parts) > 1 {
			text = escape(text, len(buf))
		}
		buf = text
	}
	return buf, key, nil
}

// appendPlain appends the text of a value that is already in plain form: a string for a text column, an integer within
// the range of an integer column, or a uuid in PostgreSQL's own form. A string "042" for an integer column is not
// plain, nor is any other form of a uuid.
func (p rulePart) appendPlain(buf []byte, value any) ([]byte, bool) {
	if text, ok := value.(string); ok {
		return append(buf, text...), p.takes(text)
	}
	n, ok := integer(value)
	return strconv.AppendInt(buf, n, 10), ok && p.holds(n)
}

func integer(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	}
	return 0, false
}

// takes reports whether a text is a value of the column in the form in which PostgreSQL prints it.
func (p rulePart) takes(text string) bool {
	switch p.kind {
	case pgtype.TextOID:
		return true
	case pgtype.VarcharOID:
		// PostgreSQL would cut off blanks beyond the length, and the row would belong to another resource.
		return p.most == 0 || len(text) <= p.most || utf8.RuneCountInString(text) <= p.most
	case pgtype.UUIDOID:
		return isUUIDText(text)
	}
	return false
}

// holds reports whether an integer is a value of the column.
func (p rulePart) holds(n int64) bool {
	switch p.kind {
	case pgtype.Int2OID:
		return n == int64(int16(n))
	case pgtype.Int4OID:
		return n == int64(int32(n))
	}
	return p.kind == pgtype.Int8OID
}

// escape rewrites buf[from:], so that a "/" in a value is not mistaken for the separator.
func escape(buf []byte, from int) []byte {
	if !strings.ContainsAny(string(buf[from:]), "%/") {
		return buf
	}
	text := escaper().Replace(string(buf[from:]))
	return append(buf[:from], text...)
}

func escaper() *strings.Replacer { return strings.NewReplacer("%", "%25", "/", "%2F") }

// keyCodec converts values of any type that pgx can encode to their plain form. It uses pgx's own encoding.
type keyCodec struct {
	mu  sync.Mutex // a pgtype.Map is for one goroutine at a time
	pgx *pgtype.Map
}

func newKeyCodec() *keyCodec { return &keyCodec{pgx: pgtype.NewMap()} }

var errNullKey = errors.New("a key value is NULL")

// normal returns the plain form of a value: an int64 or a string.
func (c *keyCodec) normal(kind keyKind, value any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oid := uint32(kind)
	format := c.pgx.FormatCodeForOID(oid)
	if _, text := value.(string); text {
		format = pgtype.TextFormatCode
	}
	sent, err := c.pgx.Encode(oid, format, value, []byte{})
	if err != nil { // pgx tries the other format as well
		format = 1 - format
		other, otherErr := c.pgx.Encode(oid, format, value, []byte{})
		if otherErr != nil {
			return nil, err
		}
		sent = other
	}
	if sent == nil {
		return nil, errNullKey
	}
	switch kind {
	case pgtype.TextOID, pgtype.VarcharOID:
		return string(sent), nil
	case pgtype.UUIDOID:
		var id pgtype.UUID
		err := c.pgx.Scan(oid, format, sent, &id)
		return id.String(), err
	default:
		var n int64
		err := c.pgx.Scan(oid, format, sent, &n)
		return n, err
	}
}

func isUUIDText(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c < '0' || c > 'f' || '9' < c && c < 'a':
			return false
		}
	}
	return true
}
