package advisory

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Key returns the number of the advisory lock that stands for a name in a namespace: the first eight bytes, as a
// signed number, the highest first, of the SHA-256 of
//
//	<bytes of the namespace, in decimal> ":" <namespace> ":" <name>
//
// The length makes the text of each pair its own, whatever colons the two contain. Names are compared byte by byte:
// a composed and a decomposed é are two names. PostgreSQL computes the same for names in UTF-8:
//
//	SELECT ('x' || left(encode(sha256(convert_to(
//	    octet_length(convert_to(namespace, 'UTF8')) || ':' || namespace || ':' || name, 'UTF8')), 'hex'), 16))::bit(64)::bigint
//
// The number is used alone, as pg_advisory_lock(bigint): PostgreSQL keeps such locks apart from those of two numbers,
// which the gate of the fence and the migrations use, so they never meet. Locks of other programs in the same
// database may have any number; meeting one of 2^64 by chance costs time and nothing else.
//
// The numbers are fixed. Where a later version had others, it and this one would not exclude each other.
func Key(namespace, name string) int64 {
	text := make([]byte, 0, len("64::")+len(namespace)+len(name))
	text = strconv.AppendInt(text, int64(len(namespace)), 10)
	text = append(text, ':')
	text = append(text, namespace...)
	text = append(text, ':')
	text = append(text, name...)
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// halves are how pg_locks shows a key: classid and objid, with objsubid 1.
func halves(key int64) (classid, objid string) {
	bits := uint64(key)
	return strconv.FormatUint(bits>>32, 10), strconv.FormatUint(bits&(1<<32-1), 10)
}
