package services_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func ownRedis(t *testing.T, args ...string) *services.Redis {
	t.Helper()
	r, err := services.StartRedis(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

func do(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	if err := f(t.Context()); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestLocalRedisCanBeHurt(t *testing.T) {
	mustServe(t, services.WayLocal)
	hurtRedis(t)
}

// hurtRedis tries everything that can be done to a test's own Redis.
func hurtRedis(t *testing.T) {
	t.Helper()
	r := ownRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	c := client(t, r.URL())
	set := func(v string) { do(t, "SET", func(ctx context.Context) error { return c.Set(ctx, "k", v, 0).Err() }) }
	get := func() string { return c.Get(t.Context(), "k").Val() }

	set("1")
	do(t, "Kill", r.Kill)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := r.Kill(t.Context()); err == nil {
		t.Error("killing twice is no error")
	}
	do(t, "Start", r.Start)
	if err := r.Start(t.Context()); err == nil {
		t.Error("starting twice is no error")
	}
	if got := get(); got != "1" {
		t.Errorf("after Start k is %q, want what was on disk", got)
	}
	do(t, "Kill", r.Kill)
	do(t, "StartEmpty", r.StartEmpty)
	if got := get(); got != "" {
		t.Errorf("after StartEmpty k is %q, want nothing", got)
	}

	set("2")
	do(t, "Pause", r.Pause)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answers")
	}
	do(t, "Resume", r.Resume)
	if got := get(); got != "2" {
		t.Errorf("after Resume k is %q, want 2", got)
	}
	// The cleanup must also get rid of a paused server.
	do(t, "Pause", r.Pause)
}

func TestRedisArgumentsAreChecked(t *testing.T) {
	mustServe(t, services.WayLocal)
	r, err := services.StartRedis(t.Context(), "--no-such-option", "1")
	if err == nil {
		_ = r.Close()
		t.Fatal("a server with an unknown option started")
	}
}
