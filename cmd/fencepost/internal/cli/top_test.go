//go:build unix

package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestTop(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("top_none", "top")
	a := p.acquire("invoice:1", "host-a/1")
	b := p.acquire("invoice:2", "host-b/2")
	p.overtake("invoice:2", 9, "host-c/3")
	p.wait("invoice:1", "host-d/4")
	p.golden("top", "top", a, b)
	p.golden("top_name", "top --once --sort name --limit 1")
	p.golden("top_json", "top --json", a, b)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# TYPE fencepost_lease_lost_total counter\nfencepost_lease_lost_total 3\n")
	}))
	defer worker.Close()
	p.golden("top_workers", "top --workers "+worker.URL+" --workers http://u:hunter2@127.0.0.1:1/metrics")
	p.golden("top_usage", "top --workers hunter2")
	for _, usage := range []string{"top --sort x", "top --interval 0s", "top --limit 0", "top --workers ftp://x"} {
		if got := run(t, p.with(usage)...); got.status != 2 || got.errOut == "" {
			t.Errorf("%s: %+v", usage, got)
		}
	}
	got := run(t, "top", "--database="+nowhere, "--advisory")
	if got.status != 69 || got.out != "" || strings.Contains(got.errOut, "hunter2") {
		t.Errorf("%+v", got)
	}
}

// terminal runs the program on a terminal of its own.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	tty *os.File
	saw strings.Builder
	got chan string
}

func newTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{t: t, cmd: exec.CommandContext(t.Context(), self, args...), got: make(chan string)}
	s.cmd.Env = append(os.Environ(), beProgram+"=1", "TERM=xterm", "NO_COLOR=1")
	if s.tty, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 10, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.tty.Close() })
	go func() {
		defer close(s.got)
		text := make([]byte, 4096)
		for {
			n, err := s.tty.Read(text)
			if n > 0 {
				select {
				case s.got <- string(text[:n]):
				case <-t.Context().Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// until waits until the terminal has been sent a text after all that was waited for before.
func (s *terminal) until(text string) {
	s.t.Helper()
	deadline := time.After(60 * time.Second)
	for !strings.Contains(s.saw.String(), text) {
		select {
		case more, ok := <-s.got:
			if !ok {
				s.t.Fatalf("%q was not shown before the end: %q", text, s.saw.String())
			}
			s.saw.WriteString(more)
		case <-deadline:
			s.t.Fatalf("%q is not shown: %q", text, s.saw.String())
		}
	}
	_, rest, _ := strings.Cut(s.saw.String(), text)
	s.saw.Reset()
	s.saw.WriteString(rest)
}

func (s *terminal) press(key string) {
	s.t.Helper()
	if _, err := io.WriteString(s.tty, key); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the end, after which the terminal is as it was.
func (s *terminal) ends() {
	s.t.Helper()
	s.until("\x1b[?7h\x1b[?25h\x1b[?1049l")
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("it ended with %v", err)
	}
}

// On a terminal the page is drawn on a screen of its own, as high as the window, until somebody says q.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p.acquire(name, "host-a/1")
	}
	s := newTerminal(t, p.with("top --interval 100ms")...)
	s.until("\x1b[?1049h\x1b[?25l\x1b[?7l")
	s.until("sorted by waiting")
	s.until("5 held")
	s.until("… and 4 others\x1b[K\x1b[J") // ten lines in all
	s.press("n")
	s.until("sorted by name")
	s.until("\x1b[Hfencepost top   namespace " + p.namespace)
	s.press("x") // which is nothing
	s.press("h")
	s.until("sorted by held")
	s.press("q")
	s.ends()

	s = newTerminal(t, p.with("top --interval 100ms")...)
	s.until("5 held")
	s.press("\x03")
	s.ends()

	s = newTerminal(t, p.with("top --interval 100ms")...)
	s.until("5 held")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ends()
}
