package advisory

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Key returns the number of the advisory lock for a name in a namespace: the first eight bytes, as a big-endian signed
// number, of the SHA-256 of
//
//	<bytes of the namespace, in decimal> ":" <namespace> ":" <name>
//
// The length makes the text unique for each pair, whatever colons the two contain. Names are compared byte by byte: a
// composed and a decomposed é are two names. PostgreSQL computes the same for names in UTF-8:
//
//	SELECT ('x' || left(encode(sha256(convert_to(
//	    octet_length(convert_to(namespace, 'UTF8')) || ':' || namespace || ':' || name, 'UTF8')),
//	    'hex'), 16))::bit(64)::bigint
//
// The number is used alone, as pg_advisory_lock(bigint). PostgreSQL keeps such locks apart from those with two numbers,
// which the gate of the fence and the migrations use, so they never collide. Locks of other programs in the same
// database may have any number; a chance collision among 2^64 costs time and nothing else.
//
// The numbers are fixed. If a later version computed others, it and this one would not exclude each other.
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

// halves returns a key as pg_locks shows it: classid and objid, with objsubid 1.
func halves(key int64) (classid, objid string) {
	bits := uint64(key)
	return strconv.FormatUint(bits>>32, 10), strconv.FormatUint(bits&(1<<32-1), 10)
}
