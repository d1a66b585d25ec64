package token

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Nonce is 128 random bits, drawn for each grant. It proves whose grant a lease or a claim is. It is a secret: anyone
// who knows it can renew, release and write in the holder's name. fmt and slog print only its first two digits;
// [Nonce.Hex] and the text and JSON forms contain all of it.
type Nonce [16]byte

// NewNonce draws a nonce from the operating system's random source.
func NewNonce() Nonce {
	var n Nonce
	_, _ = rand.Read(n[:]) // never fails: it ends the program instead
	return n
}

// ParseNonce reads 32 hexadecimal digits. It refuses anything else, and the zero nonce, with [ErrInvalid]; the error
// does not repeat the text.
func ParseNonce(s string) (Nonce, error) {
	var n Nonce
	if len(s) != hex.EncodedLen(len(n)) {
		return Nonce{}, fmt.Errorf("%w: a nonce is 32 hexadecimal digits, not %d bytes", ErrInvalid, len(s))
	}
	if _, err := hex.Decode(n[:], []byte(s)); err != nil {
		return Nonce{}, fmt.Errorf("%w: a nonce is 32 hexadecimal digits", ErrInvalid)
	}
	if n.IsZero() {
		return Nonce{}, fmt.Errorf("%w: the zero nonce belongs to nobody", ErrInvalid)
	}
	return n, nil
}

// IsZero reports whether n is the zero value, which no grant carries.
func (n Nonce) IsZero() bool { return n == Nonce{} }

// Hex returns the 32 hexadecimal digits of n: the secret itself.
func (n Nonce) Hex() string { return hex.EncodeToString(n[:]) }

// String returns a form for people and logs that does not reveal the secret.
func (n Nonce) String() string { return n.Hex()[:2] + "…" }

// GoString keeps the secret out of %#v.
func (n Nonce) GoString() string { return "token.Nonce(" + n.String() + ")" }

// Format keeps the secret out of every verb, %x and %d included.
func (n Nonce) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprint(f, n.GoString())
		return
	}
	_, _ = fmt.Fprint(f, n.String())
}

// MarshalText writes the 32 hexadecimal digits: the secret itself.
func (n Nonce) MarshalText() ([]byte, error) { return []byte(n.Hex()), nil }

// UnmarshalText reads what [ParseNonce] reads.
func (n *Nonce) UnmarshalText(text []byte) error {
	parsed, err := ParseNonce(string(text))
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}
