package testenv

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// Main runs the tests, stops the servers, looks for leaked goroutines and exits. TestMain should call only Main: no
// other code may come before it.
func Main(m *testing.M) {
	services.RunHostIfAsked()
	os.Exit(run(m))
}

// Run runs the tests and stops the servers, for a binary whose tests are not this repository's. It does not look for
// leaks, which are for their own authors to find. Like Main it must be all that TestMain calls; it returns the exit
// status.
func Run(m *testing.M) int {
	services.RunHostIfAsked()
	return stop(m.Run())
}

// MainOfWaiting is Main for a package whose tests mostly wait: for leases to expire, for servers far away. It runs as
// many of them in parallel as least says, or one per processor if that is more, unless -parallel says otherwise.
func MainOfWaiting(m *testing.M, least int) {
	services.RunHostIfAsked()
	runAtLeast(least)
	os.Exit(run(m))
}

// MainWithExamples is MainOfWaiting for a package whose examples need servers as well. They find a new database with
// fencepost's migrations in DATABASE_URL, and Redis in REDIS_URL. A machine without servers runs no examples.
func MainWithExamples(m *testing.M, least int) {
	services.RunHostIfAsked()
	runAtLeast(least)
	end, err := serveExamples(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv: servers for the examples:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: the examples' database:", err)
		code = max(code, 1)
	}
	os.Exit(finish(code))
}

// runAtLeast sets how many tests run in parallel. It comes before the flags are parsed, so the command line takes
// precedence.
func runAtLeast(least int) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(least, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err) // package testing has always had that flag
	}
}

func run(m *testing.M) int { return finish(m.Run()) }

// finish stops the servers and looks for what the tests left behind.
func finish(code int) int {
	if code = stop(code); code != 0 {
		return code // a failed test may well have left something running
	}
	if err := leaks(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	return 0
}

// stop stops the servers and reports which tests used them.
func stop(code int) int {
	report, err := shared.close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if report != "" {
		fmt.Println("testenv:", report)
		if err := services.AppendReport(thisPackage() + " " + report); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			code = max(code, 1)
		}
	}
	return code
}

// leakPatience is how long goroutines may take to end once told to.
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

// thisPackage is the import path of the package under test.
func thisPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return os.Args[0]
	}
	return strings.TrimSuffix(info.Path, ".test")
}
