package cli

import "regexp"

// withoutSecrets removes what may hold a password from a text that quotes the user's input: an
// address given in the wrong place, say, which the parser repeats.
func withoutSecrets(text string) string {
	address := regexp.MustCompile("[^\\s\"'`]*://[^\\s\"'`]*")
	keyword := regexp.MustCompile(`(?i)password\s*=\s*('[^']*'|\S+)`)
	return keyword.ReplaceAllString(address.ReplaceAllString(text, "(address withheld)"), "password=(withheld)")
}
