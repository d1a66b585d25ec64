package demo_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/demo"
)

// What the timeline looks like, to the letter.
func TestTimeline(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	timeline := demo.NewTimeline(&out, false)
	for _, e := range aPlay() {
		timeline.Watch(demo.Fenced, e)
	}
	timeline.End(&demo.Result{Fenced: &demo.End{
		Row: demo.Row{Value: "paid by B", Token: 8}, StaleWrite: demo.Refused, StaleToken: 7, CurrentToken: 8,
	}})
	const want = `
FENCED
The same workers write by an UPDATE behind fence.Enter, in one transaction:
PostgreSQL compares the token with the fence.

                                                      Redis  PostgreSQL
time    worker A               worker B               lease  fence  row
0.00 s  has lease, token 7                            A      7      "open", token 0
0.10 s  STOPPED by SIGSTOP
1.50 s  :                      has lease, token 8     B      8
1.60 s  :                      writes "paid by B"                   "paid by B", token 8
1.70 s  :                      ends                   -
2.00 s  RESUMED by SIGCONT
2.01 s  writes "paid by A":                                         "paid by B", token 8
        REFUSED, token 7 is
        stale, current is 8

fenced:   row = "paid by B", token 8
          PostgreSQL refused A's late write: token 7 is stale, the fence is at 8.
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := timeline.Err(); err != nil {
		t.Error(err)
	}
}

func aPlay() []demo.Event {
	open, paid := &demo.Row{Value: "open"}, &demo.Row{Value: "paid by B", Token: 8}
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	return []demo.Event{
		{At: 0, Worker: "A", Text: "has lease, token 7", Lease: "A", Fence: 7, Row: open},
		{At: at(100), Worker: "A", Text: "STOPPED by SIGSTOP", Tone: demo.Stopped},
		{At: at(1500), Worker: "B", Text: "has lease, token 8", Lease: "B", Fence: 8},
		{At: at(1600), Worker: "B", Text: `writes "paid by B"`, Fence: 8, Row: paid},
		{At: at(1700), Worker: "B", Text: "ends", Lease: "-"},
		{At: at(2000), Worker: "A", Text: "RESUMED by SIGCONT", Tone: demo.Resumed},
		{
			At: at(2010), Worker: "A", Text: `writes "paid by A": REFUSED, token 7 is stale, current is 8`, Tone: demo.Rescue,
			Fence: 8, Row: paid,
		},
	}
}

// Colours change nothing else: without them the text is the same.
func TestTimelineInColor(t *testing.T) {
	t.Parallel()
	print := func(color bool) string {
		var out bytes.Buffer
		timeline := demo.NewTimeline(&out, color)
		for _, e := range aPlay() {
			timeline.Watch(demo.Fenced, e)
		}
		timeline.End(&demo.Result{Unfenced: &demo.End{StaleWrite: demo.Accepted}})
		return out.String()
	}
	plain, colored := print(false), print(true)
	for _, part := range []string{
		"\x1b[33mSTOPPED by SIGSTOP\x1b[0m", "\x1b[32mREFUSED, token 7 is\x1b[0m", "\x1b[31mA's late write was accepted",
	} {
		if !strings.Contains(colored, part) {
			t.Errorf("no %q in %q", part, colored)
		}
	}
	if strings.Contains(plain, "\x1b") {
		t.Error("colours although none were asked for")
	}
	without := strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "").
		Replace(colored)
	if without != plain {
		t.Errorf("got %q, want %q", without, plain)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestTimelineRemembersThatNobodyReads(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	timeline := demo.NewTimeline(brokenWriter{broken}, false)
	timeline.Watch(demo.Unfenced, demo.Event{Worker: "A", Text: "starts"})
	if err := timeline.Err(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
