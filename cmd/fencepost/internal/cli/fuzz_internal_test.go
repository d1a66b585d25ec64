package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/lease"
)

// Whatever is typed, the command line is read or refused, and an address with a password that stands anywhere in it is
// never repeated.
func FuzzArguments(f *testing.F) {
	for _, line := range []string{
		"", "lease ls", "lease watch --prefix a: --count 2", "run -r x -- ./program --flag",
		"why r --token 7", "top --sort=name",
		"serve --listen 127.0.0.1:0", "migrate sql --format goose", "protect --level=column a.b=c:{d}", "complete -- lease",
		"lease release r --force --wait 1h", "ledger ls --before 2026-12-01T00:00:00Z --after k",
		"grant --operator x", "--settings /dev/null version",
		"--help", "lease --help", "fence ls --limit 1 --after \x00",
		"run --ttl=1e3s -r '' --", "\xff\xfe --\xf0", "reseed --advisory",
	} {
		f.Add(line, 0)
		f.Add(line, 2)
	}
	f.Fuzz(func(t *testing.T, line string, at int) {
		args := strings.Split(line, " ")
		at = min(max(at, 0), len(args))
		args = append(args[:at:at], append([]string{"postgres://somebody:hunter2@127.0.0.1:1/none"}, args[at:]...)...)
		for _, list := range [][]string{args, append([]string{"--database"}, args...)} {
			var out, errOut bytes.Buffer
			std := &streams{in: strings.NewReader(""), out: &out, err: &errOut}
			selected, err := parse(&commands{}, list, std)
			if err != nil {
				std.complain(err)
				if !strings.HasPrefix(errOut.String(), "fencepost: ") && !strings.HasPrefix(errOut.String(), "interrupted: ") {
					t.Errorf("%q: it says %q", list, &errOut)
				}
			} else if selected != nil && selected.Command() == "" {
				t.Errorf("%q selects nothing", list)
			}
			if strings.Contains(out.String()+errOut.String(), "hunter2") {
				t.Errorf("%q: the password is repeated: %s%s", list, &out, &errOut)
			}
		}
	})
}

// A name from somebody else's hand stays on its line, and sends nothing to the terminal.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"", "invoice:1", "\x1b[2J", "a\nb\tc", "<script>", "\u202e", "\u0085", "\xff", "😀", strings.Repeat("x", 600),
	} {
		f.Add(name, name)
	}
	f.Fuzz(func(t *testing.T, name, label string) {
		page := &board.Page{
			Namespace: "n",
			Leases:    []board.Row{{Resource: name, Holder: label, Standing: lease.Held, Token: 1}},
		}
		lines := board.Lines(board.Shot{Page: page}, "", board.View{})
		lines = append(
			lines,
			shown(standingText(operate.Lease{Standing: lease.Held, Label: label}, nil)),
			openText(operate.Work{Query: name, Application: label}),
		)
		for _, line := range lines {
			if strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q %q: a line has control characters: %q", name, label, line)
			}
		}
		if got := lines[len(lines)-3]; !strings.Contains(got, " 1 ") {
			t.Errorf("%q %q: the row is torn: %q", name, label, got)
		}
	})
}
