package cli

import (
	"io"
	"regexp"
)

// withoutSecrets removes possible passwords from a text that quotes the user's input, such as an address in the wrong
// place that the parser repeats.
func withoutSecrets(text string) string {
	address := regexp.MustCompile("[^\\s\"'`]*://[^\\s\"'`]*")
	keyword := regexp.MustCompile(`(?i)password\s*=\s*('[^']*'|\S+)`)
	return keyword.ReplaceAllString(address.ReplaceAllString(text, "(address withheld)"), "password=(withheld)")
}

// censor removes secrets from what is written. Each write must be a whole text.
type censor struct{ out io.Writer }

// Write writes text without its secrets.
func (c censor) Write(text []byte) (int, error) {
	if _, err := io.WriteString(c.out, withoutSecrets(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
