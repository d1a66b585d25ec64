//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// demoProgram is the program in a separate process, because it starts itself again.
func demoProgram(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, append([]string{"demo"}, args...)...)
	cmd.Env = append(
		os.Environ(),
		beProgram+"=1",
		"GORACE=atexit_sleep_ms=0",
		"FENCEPOST_SERVICES=url",
		"FENCEPOST_POSTGRES_URL="+testenv.EmptyDatabase(t),
		"FENCEPOST_REDIS_URL="+testenv.RedisURL(t),
	)
	return cmd
}

func runDemo(t *testing.T, args ...string) result {
	t.Helper()
	cmd := demoProgram(t, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

type demoRow struct {
	Value string
	Token token.Token
}

func TestDemoInJSON(t *testing.T) {
	t.Parallel()
	got := runDemo(t, "--json")
	v := decode[struct {
		Unfenced struct {
			Row        demoRow
			StaleWrite string `json:"stale_write"`
		}
		Fenced struct {
			Row          demoRow
			StaleWrite   string      `json:"stale_write"`
			StaleToken   token.Token `json:"stale_token"`
			CurrentToken token.Token `json:"current_token"`
		}
		Services struct{ Postgres, Redis string }
	}](t, got)
	if got.status != 0 {
		t.Errorf("exit status %d: %s", got.status, got.errOut)
	}
	if u := v.Unfenced; u.Row != (demoRow{"paid by A", 1}) || u.StaleWrite != "accepted" {
		t.Errorf("unfenced: %+v", u)
	}
	if f := v.Fenced; f.Row != (demoRow{"paid by B", 2}) || f.StaleWrite != "refused" || f.StaleToken != 1 ||
		f.CurrentToken != 2 {
		t.Errorf("fenced: %+v", f)
	}
	if s := v.Services; !strings.Contains(s.Postgres, "from FENCEPOST_POSTGRES_URL") ||
		!strings.Contains(s.Redis, "from FENCEPOST_REDIS_URL") {
		t.Errorf("services: %+v", s)
	}
	if strings.Contains(got.out, `"token":1`) || !strings.Contains(got.out, `"token":"1"`) {
		t.Errorf("tokens are not strings: %s", got.out)
	}
	if !strings.HasPrefix(got.errOut, "services (url): PostgreSQL ") {
		t.Errorf("standard error does not begin with the services: %s", got.errOut)
	}
}

func TestDemoForPeople(t *testing.T) {
	t.Parallel()
	got := runDemo(t)
	if got.status != 0 || got.errOut != "" {
		t.Errorf("exit status %d, standard error %q", got.status, got.errOut)
	}
	if !strings.HasPrefix(got.out, "services (url): PostgreSQL ") || strings.Contains(got.out, "\x1b") {
		t.Errorf("no services at the beginning, or colours in a file: %s", got.out)
	}
	for _, part := range []string{
		"\nUNFENCED\n", "\nFENCED\n", "STOPPED by SIGSTOP", "ACCEPTED", "REFUSED, token 1 is",
		"\nunfenced: row = \"paid by A\", token 1\n", "\nfenced:   row = \"paid by B\", token 2\n",
	} {
		if !strings.Contains(got.out, part) {
			t.Errorf("no %q in\n%s", part, got.out)
		}
	}
}

// Ctrl-C, a terminal that closes, and a reader that stops reading, all while A is stopped.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(p *os.Process, out io.Closer) error{
		"SIGINT":      func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGINT) },
		"SIGTERM":     func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGTERM) },
		"SIGHUP":      func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGHUP) },
		"broken pipe": func(_ *os.Process, out io.Closer) error { return out.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := demoProgram(t)
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			seen := readUntil(t, out, "STOPPED")
			if err := interrupt(cmd.Process, out); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait() // the exit status below has the outcome
			if status := cmd.ProcessState.ExitCode(); status != 1 || errOut.Len() == 0 {
				t.Errorf("exit status %d (%v), standard error %q", status, cmd.ProcessState, errOut.String())
			}
			if name != "broken pipe" && !strings.HasPrefix(errOut.String(), "fencepost: interrupted: ") {
				t.Errorf("standard error %q", errOut.String())
			}
			pids := regexp.MustCompile(`starts, pid (\d+)`).FindAllStringSubmatch(seen, -1)
			if len(pids) == 0 {
				t.Fatalf("no worker in %s", seen)
			}
			for _, match := range pids {
				if pid, _ := strconv.Atoi(match[1]); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
					t.Errorf("worker %d is still there", pid)
				}
			}
		})
	}
}

func readUntil(t *testing.T, out io.Reader, text string) (seen string) {
	t.Helper()
	lines := bufio.NewReader(out)
	for !strings.Contains(seen, text) {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %s", err, seen)
		}
		seen += line
	}
	return seen
}

// Without servers the demo gives the reason, once in each output format.
func TestDemoWithoutServers(t *testing.T) {
	t.Parallel()
	cmd := demoProgram(t, "--json")
	cmd.Env = append(cmd.Env, "FENCEPOST_POSTGRES_URL=postgres://u:hunter2@127.0.0.1:1/d", "FENCEPOST_REDIS_URL=")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the exit status below has the outcome
	got := result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	v := decode[struct {
		Services struct{ Postgres, Redis string }
		Error    string
	}](t, got)
	if got.status != 1 || !strings.Contains(v.Error, "FENCEPOST_REDIS_URL is not") ||
		!strings.Contains(got.errOut, v.Error) {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(got.out+got.errOut, "hunter2") {
		t.Errorf("the password is in the output: %+v", got)
	}
}

// The worker command is internal to the demo, and hidden.
func TestTheWorkerIsHidden(t *testing.T) {
	t.Parallel()
	if got := run(t, "--help"); !strings.Contains(got.out, "demo ") || strings.Contains(got.out, "demo-worker") {
		t.Errorf("help: %s", got.out)
	}
	if got := run(t, "demo-worker"); got.status != 1 || !strings.Contains(got.errOut, "read the script") {
		t.Errorf("a worker without a script: %+v", got)
	}
}
