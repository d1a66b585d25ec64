package lease

import (
	"strings"
	"unicode/utf8"
)

// Limits on the names of a lease.
const (
	// MaxResourceBytes is the longest resource name, in bytes of UTF-8.
	MaxResourceBytes = 512
	// MaxPrefixBytes is the longest key prefix, in bytes.
	MaxPrefixBytes = 128
	// MaxLabelBytes is the longest label, in bytes of UTF-8.
	MaxLabelBytes = 256
)

// keys are the Redis keys of one resource. All carry the same hash tag, so they live in one slot of a cluster.
type keys struct{ lease, counter, queue string }

// keysOf builds the keys "<prefix>:{<name>}:lease", "…:token" and "…:queue".
//
// Invariant: different pairs of prefix and name give different keys. A prefix has no braces, so the first brace ends
// it. An encoded name has no braces, so the next brace ends it. The name is never empty, so the cluster's hash tag is
// always the name.
func keysOf(prefix, resource string) keys {
	name := encode(resource)
	all := prefix + ":{" + name + "}:lease" + prefix + ":{" + name + "}:token" + prefix + ":{" + name + "}:queue"
	each := len(all) / 3 // three names of one length, made at once
	return keys{lease: all[:each], counter: all[each : 2*each], queue: all[2*each:]}
}

// Key returns the Redis key of a resource's lease under a prefix ([Options].Prefix). It is for operators and tests:
// deleting the key frees the lease, and its holder learns of that with its next renewal. Only a fence stops the
// holder until then.
func Key(prefix, resource string) string { return keysOf(prefix, resource).lease }

// encode writes a percent sign and two hexadecimal digits for every byte of a name that would be ambiguous in a key.
// Names are compared byte by byte: composed and decomposed forms of a letter are different names.
func encode(name string) string {
	const digits = "0123456789ABCDEF"
	plain := 0
	for plain < len(name) && isPlain(name[plain]) {
		plain++
	}
	if plain == len(name) {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 16)
	b.WriteString(name[:plain])
	for i := plain; i < len(name); i++ {
		if c := name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return c > ' ' && c < 0x7f && c != '{' && c != '}' && c != '%'
}

func checkResource(resource string) error {
	switch {
	case resource == "":
		return invalidf("the resource name is empty")
	case len(resource) > MaxResourceBytes:
		return invalidf("the resource name has %d bytes, more than %d", len(resource), MaxResourceBytes)
	case !utf8.ValidString(resource):
		return invalidf("the resource name is not valid UTF-8")
	}
	return nil
}

func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > MaxPrefixBytes:
		return invalidf("the key prefix has %d bytes, more than %d", len(prefix), MaxPrefixBytes)
	case strings.ContainsAny(prefix, "{}"):
		return invalidf("the key prefix %q has braces, which would move the cluster's hash tag", prefix)
	case !utf8.ValidString(prefix):
		return invalidf("the key prefix is not valid UTF-8")
	}
	return nil
}

func checkLabel(label string) error {
	if len(label) > MaxLabelBytes || !utf8.ValidString(label) {
		return invalidf("a label is UTF-8 text of at most %d bytes", MaxLabelBytes)
	}
	return nil
}
