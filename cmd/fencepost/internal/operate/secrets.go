package operate

import "regexp"

// WithoutNonces removes what may be a nonce from the text of a statement. The text may have been cut off, by the server
// or by this program, and then it may end with most of a nonce.
func WithoutNonces(text string) string {
	nonce := regexp.MustCompile(
		`(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|` +
			`[0-9a-f][0-9a-f-]{7,}$`)
	return nonce.ReplaceAllString(text, "(withheld)")
}
