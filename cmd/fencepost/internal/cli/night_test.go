//go:build unix

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

const operatingMD = "../../../../docs/operating.md"

// consoleBlocks finds the blocks of a page that show commands with what they print.
func consoleBlocks() *regexp.Regexp { return regexp.MustCompile("(?s)```console\n(.*?)```") }

// The section is followed literally, on fresh servers, by a shell. What a command prints is what the page shows; times,
// process ids and addresses differ from run to run.
func TestTheNightShiftsSixQuestions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := testenv.OwnRedis(t)
	p.namespace, p.redis, p.rdb = "billing", own.URL(), testenv.RedisOn(t, own.URL())
	stageNight(p)

	page, err := os.ReadFile(operatingMD)
	if err != nil {
		t.Fatal(err)
	}
	before, section, found := strings.Cut(string(page), "\n## The night shift's six questions\n")
	if !found {
		t.Fatal("docs/operating.md has no such section")
	}
	section, rest, more := strings.Cut(section, "\n## ")
	shell := newShell(t, p)
	blocks := 0
	followed := consoleBlocks().ReplaceAllStringFunc(section, func(block string) string {
		blocks++
		text := consoleBlocks().FindStringSubmatch(block)[1]
		got := shell.follow(text)
		if masked(got) != masked(text) && !*update {
			t.Errorf("docs/operating.md shows\n%s\nand the commands print\n%s\n"+
				"(go test ./internal/cli -run %s -update, if this is meant)", text, got, t.Name())
		}
		return "```console\n" + got + "```"
	})
	if blocks < questions {
		t.Errorf("%d questions are answered, want %d", blocks, questions)
	}
	if *update {
		text := before + "\n## The night shift's six questions\n" + followed
		if more {
			text += "\n## " + rest
		}
		if err := os.WriteFile(operatingMD, []byte(text), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
}

// questions are how many the section answers.
const questions = 6

// stageNight makes the night: token 7 was overtaken by 8, whose holder hangs while a third worker waits.
func stageNight(p *place) {
	p.t.Helper()
	if got := run(p.t, p.with("run -r invoices --once invoices-2026-11 --", "true")...); got.status != 0 {
		p.t.Fatalf("last night's run: %+v", got)
	}
	for range 6 {
		l := p.acquire("invoice:2026-11", "host-a/4242")
		if err := l.Release(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
	p.acquire("invoice:2026-11", "host-a/4242") // token 7
	// Its lease ends without its knowledge, as it does for a worker that is stopped.
	p.rdb.Del(p.t.Context(), "fencepost:billing:{invoice:2026-11}:lease")
	p.acquire("invoice:2026-11", "host-b/17")
	p.wait("invoice:2026-11", "host-c/99")
}

// shell runs commands as a reader of the page would.
type shell struct {
	t   *testing.T
	env []string
	dir string
}

func newShell(t *testing.T, p *place) *shell {
	t.Helper()
	return &shell{t: t, dir: t.TempDir(), env: append(
		os.Environ(), "PATH="+programFolder(t)+":"+os.Getenv("PATH"),
		"FENCEPOST_POSTGRES_URL="+p.database, "FENCEPOST_REDIS_URL="+p.redis, "FENCEPOST_NAMESPACE="+p.namespace,
	)}
}

// programFolder returns a folder with the program fencepost: this test, as the program.
func programFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := "#!/bin/sh\n" + beProgram + "=1 exec '" + self + "' \"$@\"\n"
	path := filepath.Join(folder, "fencepost")
	if err := os.WriteFile(path, []byte(program), 0o755); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	return folder
}

// follow runs each line of a block that begins with "$ ", and returns the block with what they print.
func (s *shell) follow(block string) string {
	s.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
		cmd.Env, cmd.Dir, cmd.WaitDelay = s.env, s.dir, 10*time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.t.Errorf("%s: %v: %s", command, err, out)
		}
		b.WriteString(line)
		b.Write(out)
	}
	return b.String()
}

// masked is a text without what differs from run to run.
func masked(text string) string {
	for _, r := range []struct{ pattern, by string }{
		{`\d{4}-\d\d-\d\dT[\d:.]+Z`, "WHEN"},
		{`\b(\d+m)?\d+(\.\d+)?[mµ]?s\b`, "TIME"},
		{`(pid|Process) \d+`, `$1 PID`},
		{`(-|\d+) +\d+ kB\b`, "ROWS SIZE"}, // estimates
		{` {2,}`, "  "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}
