package services_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// TestMain cannot be testenv.Main: some tests start this binary again, to play a
// user process that comes to a bad end.
func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if end := os.Getenv(victimEnv); end != "" {
		victim(end)
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start starts services in one way and closes them when the test ends.
func start(t *testing.T, way services.Way) *services.Services {
	t.Helper()
	t.Setenv("FENCEPOST_SERVICES", string(way))
	s, err := services.Start(t.Context(), nil)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// missing ends a test whose servers cannot be had, under CI=true by failing.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}
