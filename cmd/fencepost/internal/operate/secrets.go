package operate

import "regexp"

// WithoutNonces removes what may be a nonce from the text of a statement.
func WithoutNonces(text string) string {
	nonce := regexp.MustCompile(`(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}`)
	return nonce.ReplaceAllString(text, "(withheld)")
}
