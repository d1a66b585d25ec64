package services_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// noServers hides every way except what a test then sets.
func noServers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"FENCEPOST_SERVICES", "FENCEPOST_POSTGRES_URL", "FENCEPOST_REDIS_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t.Setenv("PATH", "/nonexistent")
}

// TestErrorNamesEachWay: without any server, one error says why for each way.
func TestErrorNamesEachWay(t *testing.T) {
	noServers(t)
	_, err := services.Start(t.Context(), nil)
	var none *services.UnavailableError
	if !errors.As(err, &none) {
		t.Fatalf("got %v, want an UnavailableError", err)
	}
	var ways []services.Way
	for _, a := range none.Attempts {
		ways = append(ways, a.Way)
	}
	want := []services.Way{services.WayURL, services.WayDocker, services.WayLocal}
	if len(ways) != 3 || ways[0] != want[0] || ways[1] != want[1] || ways[2] != want[2] {
		t.Errorf("tried %v, want %v", ways, want)
	}
	for _, part := range []string{"FENCEPOST_POSTGRES_URL", "docker: ", "redis-server"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %q:\n%v", part, err)
		}
	}
	if err := services.Probe(t.Context()).Err; err == nil {
		t.Error("Probe finds servers where Start does not")
	}
}

func TestForcedWayIsTheOnlyOne(t *testing.T) {
	for _, way := range []services.Way{services.WayURL, services.WayDocker, services.WayLocal} {
		t.Run(string(way), func(t *testing.T) {
			noServers(t)
			t.Setenv("FENCEPOST_SERVICES", string(way))
			_, err := services.Start(t.Context(), nil)
			var none *services.UnavailableError
			if !errors.As(err, &none) {
				t.Fatalf("got %v, want an UnavailableError", err)
			}
			if len(none.Attempts) != 1 || none.Attempts[0].Way != way {
				t.Errorf("tried %v, want only %s", none.Attempts, way)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		t.Setenv("FENCEPOST_SERVICES", "cloud")
		if _, err := services.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "cloud") {
			t.Errorf("got %v, want an error about the word", err)
		}
	})
}

// TestOneAddressAlone: it is a mistake, so the search ends with it.
func TestOneAddressAlone(t *testing.T) {
	for set, other := range map[string]string{
		"FENCEPOST_POSTGRES_URL": "FENCEPOST_REDIS_URL",
		"FENCEPOST_REDIS_URL":    "FENCEPOST_POSTGRES_URL",
	} {
		t.Run(set, func(t *testing.T) {
			noServers(t)
			t.Setenv(set, "x://y")
			_, err := services.Start(t.Context(), nil)
			var none *services.UnavailableError
			if !errors.As(err, &none) || len(none.Attempts) != 1 {
				t.Fatalf("got %v, want one attempt", err)
			}
			if !strings.Contains(err.Error(), other+" is not") {
				t.Errorf("the error does not name %s: %v", other, err)
			}
		})
	}
}

// TestNoPasswordInErrors: whatever is wrong with an address.
func TestNoPasswordInErrors(t *testing.T) {
	const secret = "hunter2"
	for name, urls := range map[string][2]string{
		"no server":    {"postgres://u:" + secret + "@127.0.0.1:1/d", "redis://:" + secret + "@127.0.0.1:1"},
		"bad port":     {"postgres://u:" + secret + "@127.0.0.1:port/d", "redis://127.0.0.1:1"},
		"bad redis":    {"postgres://127.0.0.1:1/d", "redis://:" + secret + "@127.0.0.1:port"},
		"wrong scheme": {"postgres://127.0.0.1:1/d", "http://:" + secret + "@127.0.0.1:1"},
		"not a URL":    {"host=127.0.0.1 password=" + secret, "redis://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			noServers(t)
			t.Setenv("FENCEPOST_SERVICES", "url")
			t.Setenv("FENCEPOST_POSTGRES_URL", urls[0])
			t.Setenv("FENCEPOST_REDIS_URL", urls[1])
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := services.Start(ctx, nil)
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want an error without the password", err)
			}
		})
	}
}

// TestAddressesComeFirst: servers named by address are used, and left alone.
func TestAddressesComeFirst(t *testing.T) {
	s := start(t, services.WayLocal)
	t.Setenv("FENCEPOST_SERVICES", "")
	t.Setenv("FENCEPOST_POSTGRES_URL", s.PostgresURL)
	t.Setenv("FENCEPOST_REDIS_URL", s.RedisURL)
	named, err := services.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if named.Way != services.WayURL || named.PostgresURL != s.PostgresURL || named.RedisURL != s.RedisURL {
		t.Errorf("took %v, want the servers named by address", named)
	}
	if text := named.String(); strings.Contains(text, "@") || strings.Contains(text, "\n") {
		t.Errorf("the line may hold a password: %s", text)
	}
	if err := named.Close(); err != nil {
		t.Error(err)
	}
	if err := client(t, s.RedisURL).Ping(t.Context()).Err(); err != nil {
		t.Errorf("Close stopped a server that it did not start: %v", err)
	}
	if found := services.Probe(t.Context()); found.Err != nil || found.Way != services.WayURL {
		t.Errorf("Probe says %v", found)
	}
}
