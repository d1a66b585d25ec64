//go:build unix

package cli_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// age has all claims look a month old.
func (p *place) age() {
	p.t.Helper()
	const sql = `UPDATE fencepost.fence SET claimed_at = now() - interval '31 days'`
	if _, err := p.pool.Exec(p.t.Context(), sql); err != nil {
		p.t.Fatal(err)
	}
}

// Old fences are collected, and one whose lease is held is not: its holder goes on writing.
func TestFenceGC(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	gc := func(rest ...string) []string {
		return append(append([]string{"fence", "gc"}, p.flags()...), rest...)
	}
	p.overtake("a", 1, "host-a/1")
	p.overtake("b", 7, "host-a/1")
	l := p.acquire("c", "host-b/2")
	p.age()
	p.overtake("young", 1, "host-a/1")

	dry := run(t, gc("--older-than=720h", "--dry-run")...)
	if dry.status != 0 || !strings.HasPrefix(dry.out, "3 fences older than 720h0m0s: 1 held, 2 to collect\nTABLE") ||
		!strings.Contains(dry.out, "fencepost.floor") || !strings.Contains(dry.out, "fencepost.ledger") {
		t.Errorf("%+v", dry)
	}
	golden(t, "fence_gc", run(t, gc("--older-than=720h")...), p.own()...)
	golden(t, "fence_gc_ls", run(t, p.with("fence ls")...), p.own()...)
	golden(t, "fence_gc_young", run(t, gc("--older-than=59m")...), p.own()...)
	golden(t, "fence_gc_age", run(t, gc()...), p.own()...)
	var answer struct {
		Old, Held, Collected int
		Tables               []struct{ Table string }
	}
	again := run(t, gc("--older-than=720h", "--json")...)
	err := json.Unmarshal([]byte(again.out), &answer)
	if err != nil || answer.Old != 1 || answer.Held != 1 || len(answer.Tables) != 4 {
		t.Errorf("%v: %+v", err, again)
	}
	err = pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error { return fence.Enter(t.Context(), tx, l.Claim()) })
	if err != nil {
		t.Errorf("the holder: %v", err)
	}
	if next := p.acquire("b", "host-c/3"); next.Token() != 8 { // Redis had no counter
		t.Errorf("the next token is %d, want 8", next.Token())
	}
	var stale *fence.StaleError
	err = pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
		c := l.Claim()
		c.Resource = p.namespace + ":a"
		return fence.Enter(t.Context(), tx, c)
	})
	if !errors.As(err, &stale) || !stale.Floor {
		t.Errorf("a token of a collected fence: %v", err)
	}
}

// In advisory mode a resource is held if its lock is.
func TestFenceGCInAdvisoryMode(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.overtake("a", 1, "host-a/1")
	p.age()
	got := run(t, p.with("fence gc --advisory --older-than=720h")...)
	if got.status != 0 || got.out != "1 fences older than 720h0m0s: 1 collected, 0 held, 0 in use\n" {
		t.Errorf("%+v", got)
	}
}
