//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// watching is a command that goes on, in process.
type watching struct {
	t      *testing.T
	lines  chan string
	text   bytes.Buffer
	errOut *lockedBuffer
	cancel context.CancelFunc
	status chan int
}

// lockedBuffer is a buffer that is read while somebody writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// begin runs a command in the background until it ends, or until the test has ended.
func begin(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, lines: make(chan string), errOut: &lockedBuffer{}, cancel: cancel, status: make(chan int, 1)}
	read, write := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.status <- cli.Run(ctx, args, strings.NewReader(""), write, w.errOut)
		_ = write.Close()
	}()
	go func() {
		defer close(w.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			select {
			case w.lines <- lines.Text():
			case <-ctx.Done(): // and the command must not wait for its reader
				_, _ = io.Copy(io.Discard, read)
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// line returns the next line.
func (w *watching) line() string {
	w.t.Helper()
	select {
	case line := <-w.lines:
		w.text.WriteString(line + "\n")
		return line
	case <-time.After(30 * time.Second):
		w.t.Fatalf("it printed %q and nothing more; standard error: %s", &w.text, w.errOut)
		return ""
	}
}

// until reads lines up to one with a text.
func (w *watching) until(text string) string {
	w.t.Helper()
	for {
		if line := w.line(); strings.Contains(line, text) {
			return line
		}
		if w.t.Failed() {
			return ""
		}
	}
}

// result is what the command left behind.
func (w *watching) result() result {
	w.t.Helper()
	for {
		select {
		case line, ok := <-w.lines:
			if ok {
				w.text.WriteString(line + "\n")
				continue
			}
			return result{<-w.status, w.text.String(), w.errOut.String()}
		case <-time.After(30 * time.Second):
			w.t.Fatalf("it does not end: %s %s", &w.text, w.errOut)
		}
	}
}

func TestLeaseWatch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lease_watch", "lease_watch_json"} {
		p := newPlace(t)
		l := p.acquire("r", "host-a/1")
		args := p.with("lease watch r --interval 100ms --count 2")
		if strings.HasSuffix(name, "json") {
			args = append(args, "--json")
		}
		w := begin(t, args...)
		w.line()
		if err := l.Renew(t.Context(), 30*time.Second); err != nil { // which is no change
			t.Fatal(err)
		}
		p.overtake("r", 9, "host-b/2")
		w.line()
		p.wait("r", "host-c/3")
		golden(t, name, w.result(), p.own()...)
	}
}

func TestLeaseWatchEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("lease_watch_for", "lease watch r other --for 2s --interval 100ms")
	cmd, errOut, _ := p.start(p.with("lease watch r")...)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errOut.Len() > 0 {
		t.Errorf("after SIGTERM: %v: %s", err, errOut)
	}
	for _, usage := range []string{
		"lease watch r --prefix x", "lease watch --interval 1ms",
		"lease watch --count -1", "lease watch --for -1s", "lease watch --limit 0",
	} {
		if got := run(t, p.with(usage)...); got.status != 2 || got.errOut == "" {
			t.Errorf("%s: %+v", usage, got)
		}
	}
	got := run(t, "lease", "watch", "r", "--database="+p.database, "--redis=redis://u:hunter2@127.0.0.1:1/0")
	if got.status != 69 || strings.Contains(got.errOut, "hunter2") {
		t.Errorf("%+v", got)
	}
}

// Without a name it finds what is held, and what is held later, and says when that is free.
func TestLeaseWatchByPrefix(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("invoice:1", "host-a/1")
	p.acquire("report:1", "host-a/1")
	w := begin(t, p.with("lease watch --prefix invoice: --interval 100ms")...)
	if line := w.line(); !strings.Contains(line, `invoice:1  held by "host-a/1", token 1, fence 1  (now)`) {
		t.Errorf("the first line is %q", line)
	}
	p.acquire("invoice:2", "host-b/2")
	w.until(`invoice:2  held by "host-b/2"`)
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.until("invoice:1  free, fence 1  (standing, holder, token)")
	w.cancel()
	if got := w.result(); got.status != 0 || got.errOut != "" || strings.Contains(got.out, "report") {
		t.Errorf("%+v", got)
	}
}

// A server that is silent for a while ends nothing, and is complained of once.
func TestLeaseWatchOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := testenv.OwnRedis(t)
	w := begin(
		t,
		"lease",
		"watch",
		"r",
		"--interval=100ms",
		"--database="+p.database,
		"--redis="+own.URL(),
		"--namespace="+p.namespace,
	)
	w.line()
	if err := own.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := func(text string) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return strings.Contains(w.errOut.String(), text), nil }
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := testenv.Until(ctx, said("sees nothing now")); err != nil {
		t.Fatal(err, w.errOut)
	}
	if err := own.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Until(ctx, said("sees the servers again")); err != nil {
		t.Fatal(err, w.errOut)
	}
	s, err := fencepost.New(
		p.pool,
		testenv.RedisOn(t, own.URL()),
		&fencepost.Options{Namespace: p.namespace, Label: "host-a/1"},
	)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release(context.Background()) }()
	w.until(`held by "host-a/1"`)
	w.cancel()
	if got := w.result(); got.status != 0 || strings.Count(got.errOut, "\n") != 2 {
		t.Errorf("%+v", got)
	}
}
