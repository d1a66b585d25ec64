//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// place is a database, and a namespace on the shared Redis, of one test.
type place struct {
	t         *testing.T
	database  string
	redis     string
	namespace string
	pool      *pgxpool.Pool
	rdb       redis.UniversalClient
}

func newPlace(t *testing.T) *place {
	t.Helper()
	database := testenv.Database(t)
	prefix := testenv.Prefix(t)
	return &place{
		t: t, database: database, redis: testenv.RedisURL(t), namespace: strings.ReplaceAll(prefix, ":", "-"),
		pool: testenv.PoolOn(t, database), rdb: testenv.Redis(t),
	}
}

// flags are those that name the place.
func (p *place) flags() []string {
	return []string{"--database=" + p.database, "--redis=" + p.redis, "--namespace=" + p.namespace}
}

// with returns a command line for the place: the command, the flags, and the rest.
func (p *place) with(command string, rest ...string) []string {
	words := strings.Fields(command)
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })
	if at < 0 {
		at = len(words)
	}
	flags := p.flags()
	if words[0] == "fence" || words[0] == "ledger" {
		flags = slices.DeleteFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--redis=") })
	}
	return append(slices.Insert(words, at, flags...), rest...)
}

// store returns a store on the place, whose leases have a label.
func (p *place) store(label string) *fencepost.Store {
	p.t.Helper()
	s, err := fencepost.New(p.pool, p.rdb, &fencepost.Options{Namespace: p.namespace, Label: label})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// acquire holds a lease until the test ends.
func (p *place) acquire(resource, label string) *fencepost.Lease {
	p.t.Helper()
	l, err := p.store(label).Acquire(p.t.Context(), resource, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func TestRunPassesOnTheStatusAndHandsOverTheClaim(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := run(t, p.with("run -r invoice:1 --", "sh", "-c",
		`cat <&3; echo "$FENCEPOST_RESOURCE $FENCEPOST_NAMESPACE $FENCEPOST_TOKEN $FENCEPOST_CLAIM_FD"; exit 7`)...)
	line, rest, _ := strings.Cut(got.out, "\n")
	if want := "invoice:1 " + p.namespace + " 1 3\n"; got.status != 7 || rest != want || got.errOut != "" {
		t.Fatalf("%+v, want %q", got, want)
	}
	var claim fencepost.Claim
	if err := json.Unmarshal([]byte(line), &claim); err != nil {
		t.Fatal(err)
	}
	// The claim is good until somebody claims again. (The lease has been released, and the fence stays.)
	if err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
		return fence.Enter(t.Context(), tx, claim)
	}); err != nil {
		t.Errorf("enter with the claim that the program got: %v", err)
	}
	for args, want := range map[string]int{"/nowhere/at/all": 127, "/": 126} {
		if got := run(t, p.with("run -r x --", args)...); got.status != want || got.errOut == "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	got = run(t, p.with("run -r x -v --", "cat")...)
	if got.status != 0 || got.out != "" || !strings.Contains(got.errOut, `"x" runs under token 3`) {
		t.Errorf("%+v", got)
	}
}

func TestRunIsHeldOff(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.acquire("nightly", "host-a/1")
	for _, wait := range []string{"0s", "2s"} { // long enough for the servers' first answers
		got := run(t, p.with("run -r nightly --wait "+wait+" --", "echo", "ran")...)
		if got.status != 75 || got.out != "" || !strings.Contains(got.errOut, `by "host-a/1"`) {
			t.Errorf("--wait %s: %+v", wait, got)
		}
	}
}

func TestRunNeedsItsServers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, tt := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"no Redis": {
			[]string{"--database=" + p.database, "--redis=redis://u:hunter2@127.0.0.1:1/0"},
			69, "unavailable: Redis",
		},
		"no PostgreSQL": {[]string{"--database=" + nowhere, "--redis=" + testenv.RedisURL(t)}, 69, "unavailable: PostgreSQL"},
		"no migrations": {
			[]string{"--database=" + testenv.EmptyDatabase(t), "--redis=" + testenv.RedisURL(t), "--namespace=" + p.namespace},
			69, "fencepost migrate up",
		},
		"a bad TTL":           {append(p.flags(), "--ttl=1ms"), 2, "TTL of 1ms"},
		"two Redis":           {append(p.flags(), "--redis=redis://hunter2"), 2, "no quorum"},
		"advisory's max hold": {append(p.flags(), "--advisory", "--max-hold=1s"), 2, "no end of its own"},
	} {
		got := run(t, append(append([]string{"run", "-r", "x"}, tt.args...), "--", "echo", "ran")...)
		if got.status != tt.status || got.out != "" || !strings.Contains(got.errOut, tt.says) ||
			strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, args := range [][]string{p.with("run -r x"), p.with("run", "--", "true"), p.with("run -r x --")} {
		if got := run(t, args...); got.status != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// A program that does not end by itself is ended with its lease, because another holder may work already.
func TestRunEndsTheProgramIfTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := run(t,
		p.with("run -r x --max-hold=3s --grace=2s --", "sh", "-c", `trap 'echo told' TERM; while :; do sleep 0.05; done`)...)
	if got.status != 79 || !strings.HasPrefix(got.out, "told\n") ||
		!strings.Contains(got.errOut, "ended, with status 137") {
		t.Errorf("%+v", got)
	}
}

// The control: without the loss the same program goes on for longer. (It ends by itself.)
func TestRunEndsTheProgramIfTheLeaseIsLostControl_OtherwiseItGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := run(t, p.with("run -r x --grace=100ms --", "sh", "-c", `trap 'echo told' TERM; sleep 6; echo done`)...)
	if got.status != 0 || got.out != "done\n" {
		t.Errorf("%+v", got)
	}
}

func TestRunOverAdvisoryLocks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := run(t, "run", "--advisory", "-r", "x", "--database="+p.database, "--", "sh", "-c", "echo $FENCEPOST_TOKEN")
	if got.status != 0 || got.out != "1\n" {
		t.Errorf("%+v", got)
	}
}

// start runs the program as a process of its own and returns once it has printed a line.
func (p *place) start(args ...string) (cmd *exec.Cmd, errOut *bytes.Buffer, in io.Closer) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd = exec.CommandContext(p.t.Context(), self, args...)
	cmd.Env = append(os.Environ(), beProgram+"=1")
	errOut = new(bytes.Buffer)
	cmd.Stderr = errOut
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		p.t.Fatalf("the program said nothing: %v: %s", err, errOut)
	}
	return cmd, errOut, stdin
}

// The lease is released only after the program has ended, and before this command has.
func TestRunPassesASignalOn(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := newPlace(t)
		marker := filepath.Join(t.TempDir(), "ended")
		cmd, errOut, _ := p.start(p.with("run -r x --", "sh", "-c",
			fmt.Sprintf(`trap 'sleep 0.2; echo > %s; exit 3' TERM INT HUP; echo; read -r _`, marker))...)
		next := make(chan error, 1)
		go func() {
			l, err := p.store("next").Acquire(t.Context(), "x", nil)
			if err == nil {
				_, err = os.Stat(marker)
				_ = l.Release(t.Context())
			}
			next <- err
		}()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != 3 || errOut.Len() > 0 {
			t.Errorf("%v: status %d, %s", sig, status, errOut)
		}
		if err := <-next; err != nil {
			t.Errorf("%v: the next holder: %v", sig, err)
		}
	}
}

func TestRunIsInterruptedWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.acquire("x", "other")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, p.with("run -r x --", "echo", "ran")...)
	cmd.Env = append(os.Environ(), beProgram+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for p.rdb.ZCard(t.Context(), "fencepost:"+p.namespace+":{x}:queue").Val() == 0 && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 143 || strings.Contains(out.String(), "ran") {
		t.Errorf("status %d, %s", status, &out)
	}
}

// Nobody renews the lease of a command that was killed, so its program must not go on for long.
func TestRunThatIsKilledTakesItsProgramAlong(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	marker := filepath.Join(t.TempDir(), "told")
	cmd, _, _ := p.start(p.with("run -r x --", "sh", "-c",
		fmt.Sprintf(`trap 'echo > %s; exit' TERM; echo; while :; do sleep 0.05; done`, marker))...)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := os.Stat(marker); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the program was not told")
		}
		<-time.After(10 * time.Millisecond)
	}
}
