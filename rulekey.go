package fencepost

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/fence"
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
	most   int // characters, for varchar(n); 0 where there is no bound
}

// keyKind is the type of a rule's column, domains looked through, by the OID that pgx encodes for.
type keyKind uint32

// kindOf refuses columns whose text is not one per value.
func kindOf(table string, c fence.Column) (keyKind, error) {
	switch c.BaseOID {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TextOID, pgtype.VarcharOID, pgtype.UUIDOID:
	default:
		return 0, &fence.TableError{Table: table, Problem: fmt.Sprintf(
			"column %q of the resource rule is %s, not smallint, integer, bigint, text, varchar or uuid", c.Name, c.Type)}
	}
	if c.Loose {
		return 0, &fence.TableError{Table: table, Problem: fmt.Sprintf(
			"column %q of the resource rule has a nondeterministic collation: unequal texts are one key, and would be two resources", c.Name)}
	}
	return keyKind(c.BaseOID), nil
}

// resource returns the resource, without the namespace, of the row with a key. The key comes back with the
// rule's values in their plain form, in which they are sent, so that Go and PostgreSQL speak of the same values
// whatever a type's own ways of encoding itself are; it is the caller's own where nothing had to change.
//
// The text is appended to buf: on the path of every write nothing is allocated for values of plain types.
func (r *rule) resource(buf []byte, key Key) ([]byte, Key, error) {
	buf = append(buf, r.prefix...)
	own := true // key is the caller's, not to be written to
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
			return nil, nil, invalidf("key column %q has no room for the value", part.column)
		}
		if len(r.parts) > 1 {
			text = escape(text, len(buf))
		}
		buf = text
	}
	return buf, key, nil
}

// appendPlain appends the text of a value that stands for itself in the column: a string for a text, an integer for an
// integer within its range. A string "042" for an integer does not, nor does any form of a uuid but PostgreSQL's own.
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

// takes reports whether a text is a value of the column, as PostgreSQL prints it.
func (p rulePart) takes(text string) bool {
	switch p.kind {
	case pgtype.TextOID:
		return true
	case pgtype.VarcharOID:
		// PostgreSQL would cut blanks beyond the length off, and the row be another resource's.
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

// escape rewrites what follows from, so that a "/" in a value is not taken for the one between two.
func escape(buf []byte, from int) []byte {
	if !strings.ContainsAny(string(buf[from:]), "%/") {
		return buf
	}
	text := escaper().Replace(string(buf[from:]))
	return append(buf[:from], text...)
}

func escaper() *strings.Replacer { return strings.NewReplacer("%", "%25", "/", "%2F") }

// keyCodec brings values of any type that pgx can encode into their plain form, by pgx's own encoding.
type keyCodec struct {
	mu  sync.Mutex // a pgtype.Map is for one goroutine at a time
	pgx *pgtype.Map
}

func newKeyCodec() *keyCodec { return &keyCodec{pgx: pgtype.NewMap()} }

var errNullKey = errors.New("a key value is NULL")

// normal returns an int64, or a string.
func (c *keyCodec) normal(kind keyKind, value any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oid := uint32(kind)
	format := c.pgx.FormatCodeForOID(oid)
	if _, text := value.(string); text {
		format = pgtype.TextFormatCode
	}
	sent, err := c.pgx.Encode(oid, format, value, []byte{})
	if err != nil { // pgx tries the other one as well
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
		return uuidText(id.Bytes), err
	default:
		var n int64
		err := c.pgx.Scan(oid, format, sent, &n)
		return n, err
	}
}

// uuidText is PostgreSQL's form of a uuid.
func uuidText(id [16]byte) string {
	digits := hex.EncodeToString(id[:])
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
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
