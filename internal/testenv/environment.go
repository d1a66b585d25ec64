package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// envKeep, set to any value, keeps the databases of failed tests.
const envKeep = "FENCEPOST_KEEP"

// startPatience bounds the start of servers; an image may have to be pulled first.
const startPatience = 7 * time.Minute

// shared is the servers of this test binary. It is package state, because the testing package offers tests of one
// binary no other place to share a server.
var shared environment

type environment struct {
	start    sync.Once
	services *services.Services
	server   *postgresServer
	err      error

	mu    sync.Mutex
	asked map[string]struct{} // names of tests that asked for a server and were not skipped
}

// get returns the servers, starting them for the first test that asks.
func (e *environment) get(tb testing.TB) (*services.Services, *postgresServer) {
	tb.Helper()
	e.count(tb)
	e.begin()
	if e.services == nil {
		missing(tb, e.err)
	}
	if e.err != nil {
		tb.Fatalf("preparing the PostgreSQL server for tests: %v", e.err)
	}
	return e.services, e.server
}

// begin starts the servers, unless they have been started already.
func (e *environment) begin() {
	e.start.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		e.services, e.err = services.Start(ctx, nil)
		if e.err != nil {
			return
		}
		e.server, e.err = openServer(ctx, e.services)
	})
}

func (e *environment) count(tb testing.TB) {
	tb.Helper()
	e.countName(tb.Name())
}

func (e *environment) countName(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]struct{}{}
	}
	e.asked[name] = struct{}{}
}

// uncount removes a skipped test from those that used a server.
func (e *environment) uncount(tb testing.TB) {
	tb.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, tb.Name())
}

// missing ends a test that has no server at all. A build must not stay green because its servers are gone.
func missing(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("CI=true and %v", err)
	}
	Lacking(tb, err, services.WayURL, services.WayDocker, services.WayLocal)
}

// Lacking ends a test that has servers, but lacks something else that the given ways could provide. The test is
// skipped, even under CI=true, unless FENCEPOST_REQUIRE names one of the ways: machines differ in what they have, and a
// build that must not skip says so.
func Lacking(tb testing.TB, reason error, ways ...services.Way) {
	tb.Helper()
	if err := services.RequireError(reason, ways...); err != nil {
		tb.Fatal(err)
	}
	shared.uncount(tb)
	if err := services.ReportSkipped(tb.Name(), reason); err != nil {
		tb.Fatal(err)
	}
	tb.Skipf("skipped: %v", reason)
}

// noOwn ends a test whose own server could not be started. If the shared servers were started by this process, another
// one should have started too, so that is a failure.
func noOwn(tb testing.TB, err error) {
	tb.Helper()
	if s, _ := shared.get(tb); s.Way != services.WayURL {
		tb.Fatal(err)
	}
	Lacking(tb, err, services.WayDocker, services.WayLocal)
}

// close stops the servers. The report is empty if no test used one.
func (e *environment) close() (report string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	on := "none"
	if e.services != nil {
		on = e.services.String()
	}
	if len(e.asked) > 0 {
		report = fmt.Sprintf("%d %s", len(e.asked), on)
	}
	if e.services == nil {
		return report, nil
	}
	if e.server != nil {
		err = e.server.close()
	}
	return report, errors.Join(err, e.services.Close())
}
