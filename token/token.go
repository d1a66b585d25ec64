package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Token is a fencing token: a positive 63-bit integer that rises with every grant of a resource. Tokens compare with <,
// == and >.
//
// The zero value means that there is no token, for example in a row that no fenced write has touched. [Token.Valid]
// distinguishes it.
//
// In JSON a token is a string of decimal digits, because readers that treat numbers as doubles lose digits above 2^53.
type Token int64

// Max is the highest possible token.
const Max Token = 1<<63 - 1

// Parse reads a token from decimal digits. It refuses anything else with [ErrInvalid]: zero, signs, leading zeros,
// fractions, exponents, spaces, and numbers above [Max].
func Parse(s string) (Token, error) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, invalidText(s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, invalidText(s)
	}
	return Token(n), nil
}

func invalidText(s string) error {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Errorf("%w: token %q is not a decimal number from 1 to %d", ErrInvalid, s, Max)
}

// Valid reports whether t is a token that a grant can carry: positive.
func (t Token) Valid() bool { return t > 0 }

// Check returns nil for a valid token and an error that matches [ErrInvalid] for zero and below.
func (t Token) Check() error {
	if t.Valid() {
		return nil
	}
	return fmt.Errorf("%w: token %d is not positive", ErrInvalid, int64(t))
}

// String returns the decimal digits of t.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalJSON writes t as a string of decimal digits. It writes the zero value as "0", so that a row without a token
// can be shown. It refuses negative values with [ErrInvalid].
func (t Token) MarshalJSON() ([]byte, error) {
	if t < 0 {
		return nil, t.Check()
	}
	return strconv.AppendQuote(nil, t.String()), nil
}

// UnmarshalJSON reads a token from a string of decimal digits or from a JSON number written as plain digits. It refuses
// fractions and exponents with [ErrInvalid], because they have been through a double and may have lost digits. It also
// refuses null, zero and negative numbers.
func (t *Token) UnmarshalJSON(data []byte) error {
	text := string(data)
	if bytes.HasPrefix(data, []byte{'"'}) {
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("%w: token: %w", ErrInvalid, err)
		}
	}
	return t.UnmarshalText([]byte(text))
}

// MarshalText writes the decimal digits of t, as [Token.MarshalJSON] does.
func (t Token) MarshalText() ([]byte, error) {
	if t < 0 {
		return nil, t.Check()
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads what [Parse] reads.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}
