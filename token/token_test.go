package token_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/token"
)

func TestParseAcceptsExactlyThePositive63BitDecimals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]token.Token{
		"1":                   1,
		"2147483648":          1 << 31,
		"9007199254740993":    1<<53 + 1,
		"9223372036854775807": math.MaxInt64,
	} {
		got, err := token.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%q printed as %q", text, got)
		}
	}
	for _, text := range []string{
		"", "0", "00", "01", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "٣",
		"9223372036854775808", "18446744073709551616", strings.Repeat("9", 400),
	} {
		if got, err := token.Parse(text); !errors.Is(err, token.ErrInvalid) || got != 0 {
			t.Errorf("Parse(%.40q) = %d, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestCheckRefusesZeroAndBelow(t *testing.T) {
	t.Parallel()
	for _, bad := range []token.Token{0, -1, math.MinInt64} {
		if bad.Valid() || !errors.Is(bad.Check(), token.ErrInvalid) {
			t.Errorf("%d passed", bad)
		}
	}
	for _, good := range []token.Token{1, token.Max} {
		if !good.Valid() || good.Check() != nil {
			t.Errorf("%d was refused", good)
		}
	}
}

func TestCase28_JSONIsAStringThatADoubleBasedReaderCannotSpoil(t *testing.T) {
	t.Parallel()
	const big = token.Token(1<<53 + 1)
	data, err := json.Marshal(map[string]token.Token{"token": big})
	if err != nil {
		t.Fatal(err)
	}
	var loose map[string]any // decodes numbers as doubles
	if err := json.Unmarshal(data, &loose); err != nil {
		t.Fatal(err)
	}
	if loose["token"] != "9007199254740993" {
		t.Errorf("a double-based reader saw %v in %s", loose["token"], data)
	}
	var back struct{ Token token.Token }
	if err := json.Unmarshal(data, &back); err != nil || back.Token != big {
		t.Errorf("read back %d, %v", back.Token, err)
	}
}

func TestUnmarshalJSONReadsBothFormsAndRefusesWhatWentThroughADouble(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]token.Token{
		`"5"`: 5, `5`: 5, `9223372036854775807`: token.Max, `"9223372036854775807"`: token.Max,
	} {
		var got token.Token
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s read as %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		`9.007e15`, `1.0`, `1e3`, `"1.0"`, `0`, `"0"`, `-1`, `"-1"`, `""`, `null`, `true`, `{}`,
		`9223372036854775808`, `"9223372036854775808"`,
	} {
		got := token.Token(7)
		if err := json.Unmarshal([]byte(text), &got); err == nil || got != 7 {
			t.Errorf("%s read as %d, %v; want an error and the value left alone", text, got, err)
		}
	}
}

func TestMarshalRefusesNegativeTokens(t *testing.T) {
	t.Parallel()
	if data, err := json.Marshal(token.Token(-1)); !errors.Is(err, token.ErrInvalid) {
		t.Errorf("marshalled as %s, %v", data, err)
	}
	if data, err := json.Marshal(token.Token(0)); err != nil || string(data) != `"0"` {
		t.Errorf("zero marshalled as %s, %v", data, err)
	}
}

func TestNoncesDifferAndSurviveTheirTextForm(t *testing.T) {
	t.Parallel()
	seen := make(map[token.Nonce]bool)
	for range 1000 {
		n := token.NewNonce()
		if n.IsZero() || seen[n] {
			t.Fatalf("nonce %s drawn twice or zero", n.Hex())
		}
		seen[n] = true
		back, err := token.ParseNonce(n.Hex())
		if err != nil || back != n {
			t.Fatalf("%s read back as %s, %v", n.Hex(), back.Hex(), err)
		}
	}
}

func TestNonceIsNotPrinted(t *testing.T) {
	t.Parallel()
	n := token.NewNonce()
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out := fmt.Sprintf(format, n)
		if strings.Contains(out, n.Hex()[4:]) || len(out) > 24 {
			t.Errorf("%s printed %s", format, out)
		}
	}
	data, err := json.Marshal(n)
	if err != nil || string(data) != `"`+n.Hex()+`"` {
		t.Errorf("JSON %s, %v", data, err)
	}
}

func TestParseNonceRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "00", strings.Repeat("0", 32), strings.Repeat("g", 32), strings.Repeat("a", 33)} {
		if _, err := token.ParseNonce(text); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1", "0", "-1", "9223372036854775807", "9223372036854775808", "1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := token.Parse(text)
		if err == nil && (!tok.Valid() || tok.String() != text) {
			t.Errorf("Parse(%q) = %d", text, tok)
		}
	})
}
