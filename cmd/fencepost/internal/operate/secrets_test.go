package operate_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

func TestNoncesAreWithheld(t *testing.T) {
	t.Parallel()
	const enter = "SELECT fencepost.enter('r', 1, '"
	for text, want := range map[string]string{
		enter + "00000000-0000-0000-0000-00000000000A')": enter + "(withheld)')",
		"x 0123456789abcdef0123456789ABCDEF y":           "x (withheld) y",
		"cut: '00000000-0000-0000-0000-00000000000":      "cut: '(withheld)",
		"cut: 0123456789abcdef":                          "cut: (withheld)",
		"SELECT 1":                                       "SELECT 1",
	} {
		if got := operate.WithoutNonces(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}
