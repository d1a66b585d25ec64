//go:build unix

package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// The first argument says what this binary is when it is started again.
const (
	beWorker   = "demo-worker"
	beDirector = "demo-director" // with Options in JSON as its second argument
)

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	switch os.Args[len(os.Args)-1] {
	case beWorker:
		if err := demo.RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	case beDirector:
		direct()
		return
	}
	// A binary built with -race sleeps for a second at its end otherwise; workers inherit this.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}

// direct is a director that reports its events and is meant to be killed.
func direct() {
	var o demo.Options
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	o.Watch = func(_ demo.Kind, e demo.Event) {
		if err := out.Encode(e.Text); err != nil {
			panic(err)
		}
	}
	_, _ = demo.Run(context.Background(), &o) // it is killed before it can say anything
}

// bundle is what one test works with: options for a demo of its own, and what has happened in it.
type bundle struct {
	opts demo.Options

	mu     sync.Mutex
	events []demo.Event
	kinds  []demo.Kind
}

func setup(t *testing.T) *bundle {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{}
	b.opts = demo.Options{
		PostgresURL: testenv.EmptyDatabase(t), RedisURL: testenv.RedisURL(t),
		Worker: []string{self, beWorker}, Name: uniqueName(t), TTL: 800 * time.Millisecond,
		Watch: b.watch,
	}
	return b
}

// uniqueName returns a name that no other test has, on a server that may be shared.
func uniqueName(t *testing.T) string {
	t.Helper()
	return strings.ToLower(strings.Trim(testenv.Prefix(t)[len("fencepost-test-"):], ":-"))
}

func (b *bundle) watch(kind demo.Kind, e demo.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds = append(b.kinds, kind)
	b.events = append(b.events, e)
}

// when calls fn at the first event whose text contains the given text.
func (b *bundle) when(text string, fn func()) {
	done := false
	b.opts.Watch = func(kind demo.Kind, e demo.Event) {
		b.watch(kind, e)
		if !done && strings.Contains(e.Text, text) {
			done = true
			fn()
		}
	}
}

// pids returns the processes that have been started.
func (b *bundle) pids(t *testing.T) []int {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var pids []int
	for _, e := range b.events {
		if pid, ok := pidOf(t, e); ok {
			pids = append(pids, pid)
		}
	}
	return pids
}

func pidOf(t *testing.T, e demo.Event) (int, bool) {
	t.Helper()
	digits, ok := strings.CutPrefix(e.Text, "starts, pid ")
	if !ok {
		return 0, false
	}
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return pid, true
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// wantNothingLeft checks that no process, database or key of the demo is left, and that at least a number of processes
// had been started.
func (b *bundle) wantNothingLeft(t *testing.T, processes int) {
	t.Helper()
	pids := b.pids(t)
	if len(pids) < processes {
		t.Errorf("%d workers were started, want at least %d", len(pids), processes)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("worker %d is still there", pid)
		}
	}
	if names := b.databases(t); len(names) != 0 {
		t.Errorf("databases are left: %q", names)
	}
	if keys := b.keys(t); len(keys) != 0 {
		t.Errorf("keys are left: %q", keys)
	}
}

func (b *bundle) databases(t *testing.T) []string {
	t.Helper()
	pool := testenv.PoolOn(t, b.opts.PostgresURL)
	rows, _ := pool.Query(t.Context(), `SELECT datname FROM pg_database WHERE datname LIKE '%' || $1 || '%'`, b.opts.Name)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (b *bundle) keys(t *testing.T) []string {
	t.Helper()
	keys, err := testenv.RedisOn(t, b.opts.RedisURL).Keys(t.Context(), "*"+b.opts.Name+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// drop removes what a killed director has left.
func (b *bundle) drop(t *testing.T) {
	t.Helper()
	pool := testenv.PoolOn(t, b.opts.PostgresURL)
	for _, name := range b.databases(t) {
		if _, err := pool.Exec(t.Context(), fmt.Sprintf("DROP DATABASE %q WITH (FORCE)", name)); err != nil {
			t.Error(err)
		}
	}
	for _, key := range b.keys(t) {
		if err := testenv.RedisOn(t, b.opts.RedisURL).Del(t.Context(), key).Err(); err != nil {
			t.Error(err)
		}
	}
}
