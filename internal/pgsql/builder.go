package pgsql

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Builder is SQL text that grows. Its methods return the longer text, as append does, so a builder that starts in a
// [Room] allocates nothing until it outgrows it. The zero value is an empty text. It is not safe for concurrent use.
type Builder []byte

// Buffer is where a text is built on the stack: pgsql.Builder(room[:0]).
type Buffer [512]byte

// String returns the text so far.
func (b Builder) String() string { return string(b) }

// Text appends SQL unchanged.
func (b Builder) Text(parts ...string) Builder {
	for _, part := range parts {
		b = append(b, part...)
	}
	return b
}

// Name appends an identifier, quoted, from its parts.
func (b Builder) Name(parts ...string) Builder {
	for i, part := range parts {
		if i > 0 {
			b = append(b, '.')
		}
		if strings.ContainsAny(part, "\"\x00") {
			b = append(b, pgx.Identifier{part}.Sanitize()...)
			continue
		}
		b = append(append(append(b, '"'), part...), '"')
	}
	return b
}

// Names appends identifiers, each after the prefix, with commas between them.
func (b Builder) Names(prefix string, names []string) Builder {
	for i, name := range names {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = b.Text(prefix).Name(name)
	}
	return b
}

// Arg appends the placeholder of the argument with the given number, which starts at 1.
func (b Builder) Arg(number int) Builder { return strconv.AppendInt(append(b, '$'), int64(number), 10) }

// List calls item for each place from 0 to n-1 and puts a separator between the results.
func (b Builder) List(n int, separator string, item func(b Builder, place int) Builder) Builder {
	for place := range n {
		if place > 0 {
			b = append(b, separator...)
		}
		b = item(b, place)
	}
	return b
}
