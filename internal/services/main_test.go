package services_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// TestMain cannot be testenv.Main: some tests start this binary again, as a user process that ends badly.
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
	mustServe(t, way)
	s, err := services.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// mustServe forces a way, and ends the test if it does not work on this machine. Any later error is a failure.
func mustServe(t *testing.T, way services.Way) {
	t.Helper()
	t.Setenv("FENCEPOST_SERVICES", string(way))
	if found := services.Probe(t.Context()); found.Err != nil {
		missing(t, way, found.Err)
	}
}

// mustBeInstalled ends a test whose programs are not on this machine; any other error is a failure.
func mustBeInstalled(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, services.ErrNotInstalled) {
		missing(t, services.WayLocal, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// missing ends a test of a way that does not work on this machine. It fails if FENCEPOST_REQUIRE names the way.
func missing(t *testing.T, way services.Way, err error) {
	t.Helper()
	if err := services.RequireError(err, way); err != nil {
		t.Fatal(err)
	}
	if err := services.ReportSkipped(t.Name(), err); err != nil {
		t.Fatal(err)
	}
	t.Skip(err)
}
