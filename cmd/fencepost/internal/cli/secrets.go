package cli

import "regexp"

// withoutSecrets removes possible passwords from a text that quotes the user's input, such as an address in the wrong
// place that the parser repeats.
func withoutSecrets(text string) string {
	address := regexp.MustCompile("[^\\s\"'`]*://[^\\s\"'`]*")
	keyword := regexp.MustCompile(`(?i)password\s*=\s*('[^']*'|\S+)`)
	return keyword.ReplaceAllString(address.ReplaceAllString(text, "(address withheld)"), "password=(withheld)")
}
