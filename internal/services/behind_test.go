package services_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// victimEnv makes this binary a user process that starts servers, reports them, and ends in the way that the variable
// names when its input says so.
const victimEnv = "FENCEPOST_TEST_VICTIM"

func victim(end string) {
	s, err := services.Start(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		panic(err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch end {
	case "exit":
		os.Exit(3)
	case "panic":
		go func() { panic("in a goroutine") }()
		select {}
	case "close":
		if err := s.Close(); err != nil {
			panic(err)
		}
	default: // killed from outside
		select {}
	}
}

// TestNothingIsLeftBehind: however a user process ends, its servers and their folder are gone soon after.
func TestNothingIsLeftBehind(t *testing.T) {
	mustServe(t, services.WayLocal)
	for _, end := range []string{"SIGKILL", "SIGINT", "exit", "panic", "close"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t, end, services.WayLocal)
			data := dataOf(t, &v.services)
			if place := services.MemoryPlace(); !strings.HasPrefix(data, place) {
				t.Errorf("the data is in %s, and there is room in %s", data, place)
			}
			pids := pidsOf(t, &v.services, data)
			for _, pid := range pids {
				if !alive(pid) {
					t.Fatalf("process %d is not running: the test looks at the wrong one", pid)
				}
			}
			if isEmpty(t, v.dir) {
				t.Fatal("the servers' folder is elsewhere: the test looks at the wrong one")
			}
			v.end()
			waitUntil(t, "servers to end", func() bool { return !slices.ContainsFunc(pids, alive) })
			waitUntil(t, "the folder to be removed", func() bool { return isEmpty(t, v.dir) })
			waitUntil(t, "the data to be removed from memory", func() bool { return isGone(data) })
		})
	}
}

// victimProcess is a user process that ends badly.
type victimProcess struct {
	how      string
	cmd      *exec.Cmd
	in       *os.File
	dir      string // its temporary folder
	services services.Services
}

func (v *victimProcess) end() {
	switch v.how {
	case "SIGKILL":
		_ = v.cmd.Process.Kill()
	case "SIGINT":
		_ = v.cmd.Process.Signal(syscall.SIGINT)
	default:
		_, _ = v.in.WriteString("now\n")
	}
	_ = v.cmd.Wait()
}

func startVictim(t *testing.T, end string, way services.Way) *victimProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v := &victimProcess{how: end, cmd: exec.Command(self), in: ours, dir: reachableDir(t)}
	v.cmd.Env = append(os.Environ(), victimEnv+"="+end, "FENCEPOST_SERVICES="+string(way), "TMPDIR="+v.dir)
	v.cmd.Stdin = in
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = v.cmd.Process.Kill()
	})
	if err := json.NewDecoder(out).Decode(&v.services); err != nil {
		t.Fatalf("the victim started no servers: %v", err)
	}
	return v
}

// dataOf asks PostgreSQL where its data lies.
func dataOf(t *testing.T, s *services.Services) (data string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.PostgresURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	return data
}

// isGone reports whether a data folder and its parent no longer exist.
func isGone(data string) bool {
	_, err := os.Stat(filepath.Dir(data))
	return errors.Is(err, os.ErrNotExist)
}

// pidsOf finds the servers' process ids.
func pidsOf(t *testing.T, s *services.Services, data string) []int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return []int{number(t, first), redisPID(t, s.RedisURL)}
}

func redisPID(t *testing.T, address string) int {
	t.Helper()
	info := client(t, address).InfoMap(t.Context(), "server")
	if err := info.Err(); err != nil {
		t.Fatal(err)
	}
	return number(t, info.Val()["Server"]["process_id"])
}

func client(t *testing.T, address string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// reachableDir returns a temporary folder that other users can traverse; t.TempDir is not one.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "services-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func isEmpty(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestAStartThatIsGivenUpLeavesNothing: the caller's context ends in the middle.
func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	dir := reachableDir(t)
	mustServe(t, services.WayLocal)
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan []string, 1)
	go func() {
		// The folder's first file shows that the host is at work.
		folders := serverFolders(dir)
		for len(folders) == 0 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
			folders = serverFolders(dir)
		}
		begun <- folders
		cancel()
	}()
	s, err := services.Start(ctx, nil)
	if err == nil {
		_ = s.Close()
		t.Fatal("the start ended before it was given up")
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled in it", err)
	}
	if !isEmpty(t, dir) {
		t.Error("something is left in the temporary folder")
	}
	cancel()
	for _, folder := range <-begun {
		inMemory := filepath.Join("/dev/shm", filepath.Base(filepath.Dir(folder)))
		if _, err := os.Stat(inMemory); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left in memory", inMemory)
		}
	}
}

// serverFolders returns the folders that a host has made for PostgreSQL.
func serverFolders(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "fencepost-*", "postgres")) // fails only for a bad pattern
	return names
}

// TestRootsPrivateFolder: root's TMPDIR may be closed to the servers' user.
func TestRootsPrivateFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, services.WayLocal, errors.New("only root runs servers as another user"))
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	s := start(t, services.WayLocal)
	if u, err := url.Parse(s.PostgresURL); err != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("PostgreSQL is not on 127.0.0.1")
	}
	if !isEmpty(t, dir) {
		t.Error("something is left in the folder that was of no use")
	}
}
