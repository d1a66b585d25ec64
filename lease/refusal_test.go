package lease_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-pg/fencepost/lease"
)

// answer is an error in a server's words.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// Redis 6 prefixes the location to the refusal of a command inside a script; the texts are those of 6.0.16.
func TestCase40_ARefusalInsideAScriptIsRecognised(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"READONLY You can't write against a read only replica.":                                   "READONLY",
		"OOM command not allowed when used memory > 'maxmemory'. script: f0, on @user_script:79.": "OOM",
		"@user_script: 79: -OOM command not allowed when used memory > 'maxmemory'.  ":            "OOM",
		"ERR Error running script (call to f_a708b90a129fb00c68da038ff5efeec6ad3cdc5c): @user_script:12: @user_script: 12: " +
			"-READONLY You can't write against a read only replica.": "READONLY",
		"ERR Error running script (call to f_a708b90a129fb00c68da038ff5efeec6ad3cdc5c): @user_script:22: " +
			"WRONGTYPE Operation against a key holding the wrong kind of value": "WRONGTYPE",
		"ERR Error running script (call to f_a708b90a129fb00c68da038ff5efeec6ad3cdc5c): @user_script:22: " +
			"ERR the OOM is elsewhere": "",
	} {
		for _, code := range []string{"READONLY", "OOM", "WRONGTYPE"} {
			if got := lease.HasCode(fmt.Errorf("acquire: %w", answer(text)), code); got != (code == want) {
				t.Errorf("%s in %q: %v", code, text, got)
			}
		}
		if lease.HasCode(fmt.Errorf("acquire: %s", text), want) {
			t.Errorf("%q is no answer of a server, and was taken for one", text)
		}
	}
}
