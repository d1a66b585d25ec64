package testenv

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// envReport names a file to append the number of integration tests to.
const envReport = "FENCEPOST_TEST_REPORT"

// Main runs the tests, stops the servers, looks for leaked goroutines and exits.
// It is all that TestMain should call: no other code may come before it.
func Main(m *testing.M) {
	services.RunHostIfAsked()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	report, err := shared.close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if report != "" {
		fmt.Println("testenv:", report)
		if err := appendReport(report); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			code = max(code, 1)
		}
	}
	if code != 0 {
		return code // a failed test may well have left something running
	}
	if err := leaks(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	return 0
}

// leakPatience is how long goroutines that have been told to end may take.
const leakPatience = 3 * time.Second

func leaks() error {
	for end := time.Now().Add(leakPatience); ; {
		// Find itself looks again a few times with pauses.
		err := goleak.Find()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func appendReport(report string) error {
	path := os.Getenv(envReport)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening %s: %w", envReport, err)
	}
	// One write, so that lines of test binaries side by side do not mix.
	if _, err := f.WriteString(thisPackage() + " " + report + "\n"); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// thisPackage is the import path of the package under test.
func thisPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return os.Args[0]
	}
	return strings.TrimSuffix(info.Path, ".test")
}
