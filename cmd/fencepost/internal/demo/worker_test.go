//go:build unix

package demo_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A director that is killed cannot end its workers, and a stopped worker cannot notice that: the kernel ends it.
func TestAKilledDirectorLeavesNoWorker(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"STOPPED", "waits"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.opts.TTL, b.opts.Watch = 10*time.Second, nil // long enough to be killed in
			director, events := startDirector(t, b.opts)
			for e := (demo.Event{}); !strings.Contains(e.Text, at); {
				if err := events.Decode(&e.Text); err != nil {
					t.Fatal(err)
				}
				b.watch("", e)
			}
			for _, pid := range b.pids(t) {
				if !alive(pid) {
					t.Fatalf("worker %d is not there: the test looks at the wrong one", pid)
				}
			}
			if err := director.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = director.Wait() // by a signal, as asked
			for _, pid := range b.pids(t) {
				waitUntilGone(t, pid)
			}
			b.drop(t)
		})
	}
}

func startDirector(t *testing.T, o demo.Options) (*exec.Cmd, *json.Decoder) {
	t.Helper()
	in, err := json.Marshal(struct {
		PostgresURL, RedisURL, Name string
		Worker                      []string
		TTL                         time.Duration
	}{o.PostgresURL, o.RedisURL, o.Name, o.Worker, o.TTL})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(o.Worker[0], beDirector)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed before
	return cmd, json.NewDecoder(out)
}

// waitUntilGone waits for a process that is not our child, so it can only poll. A process that nobody has waited for
// counts as gone.
func waitUntilGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); alive(pid) && !isZombie(pid); {
		select {
		case <-tick.C:
		case <-end:
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func isZombie(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.Contains(string(status), "\nState:\tZ")
}

// A worker that does not do its part ends the demo within bounded time, with an error that names the worker and the
// fault.
func TestWorkersThatFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string // for sh
		want   string
	}{
		"dies at once":        {`exit 3`, "worker A ended too early, with exit status 3"},
		"is killed":           {`read x; kill -9 $$`, "worker A ended too early, by signal: killed"},
		"ends without a word": {`read x`, "worker A ended too early, with exit status 0"},
		"hangs":               {`read x; exec sleep 1000`, `wait for worker A to report ["held" "granted"]: nothing for 2s`},
		"closes its output":   {`read x; exec >&-; exec sleep 1000`, "wait for worker A to end: still running after 2s"},
		"says nonsense":       {`read x; echo nonsense; exec sleep 1000`, "understand worker A: "},
		"is out of turn": {
			`read x; echo '{"What":"over"}'; exec sleep 1000`,
			`worker A reports "over", and ["held" "granted"] was due`,
		},
		"gives up": {`read x; echo '{"What":"failed","Error":"alas"}'; exec sleep 1000`, "worker A gave up: alas"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.opts.Worker = []string{"/bin/sh", "-c", c.script}
			b.opts.Patience = 2 * time.Second
			got, err := demo.Run(t.Context(), &b.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) || got.Unfenced != nil {
				t.Errorf("got %+v, %v, want %q", got, err, c.want)
			}
			b.wantNothingLeft(t, 1)
		})
	}
	t.Run("cannot be started", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.opts.Worker = []string{"/nonexistent/worker"}
		_, err := demo.Run(t.Context(), &b.opts)
		if err == nil || !strings.Contains(err.Error(), "start worker A") {
			t.Errorf("got %v", err)
		}
		b.wantNothingLeft(t, 0)
	})
}

// If a worker dies while it is stopped, the director notices: while it waits or, if the kernel reports it late, when
// the worker is next needed.
func TestAStoppedWorkerThatIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.when("gives it back", func() {
		if err := syscall.Kill(b.pids(t)[0], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	_, err := demo.Run(t.Context(), &b.opts)
	if err == nil ||
		!regexp.MustCompile(`worker A ended (while it was stopped|too early), by signal: killed`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
	b.wantNothingLeft(t, 2)
}

// A worker whose director is gone does not write.
func TestAWorkerWithoutDirectorEnds(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	const table = `
		CREATE SCHEMA app;
		CREATE TABLE app.invoice (id text PRIMARY KEY, value text NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO app.invoice (id, value) VALUES ('2026-11', 'open')`
	if _, err := pool.Exec(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	config := pool.Config().ConnConfig
	script, err := json.Marshal(map[string]any{
		"Name": "A", "PostgresURL": config.ConnString(), "Database": config.Database, "RedisURL": testenv.RedisURL(t),
		"Namespace": config.Database, "TTL": time.Minute, "Writer": demo.GuardedWriter, "AwaitCue": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	in, director := io.Pipe()
	reports, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- demo.RunWorker(t.Context(), in, out) }()
	if _, err := director.Write(script); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(reports)
	var said []string
	for range 3 {
		var r struct{ What, Error string }
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if said = append(said, r.What+r.Error); r.What == "read" {
			_ = director.Close()
		}
	}
	if got := strings.Join(said, ", "); got != "granted, read, failedwait for the cue: standard input has ended" {
		t.Errorf("it said %s", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var value string
	if err := pool.QueryRow(t.Context(), `SELECT value FROM app.invoice`).Scan(&value); err != nil || value != "open" {
		t.Errorf("the row is %q, %v", value, err)
	}
}
