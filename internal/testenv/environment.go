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

// envKeep set to anything keeps the databases of failed tests.
const envKeep = "FENCEPOST_KEEP"

// startPatience bounds the start of servers; an image may have to be pulled first.
const startPatience = 7 * time.Minute

// shared is the servers of this test binary. It is package state, since the
// testing package gives tests of one binary no other place to share a server.
var shared environment

type environment struct {
	start    sync.Once
	services *services.Services
	server   *postgresServer
	err      error

	mu    sync.Mutex
	asked map[string]struct{} // names of tests that asked for a server
}

// get returns the servers, starting them for the first test that asks.
func (e *environment) get(tb testing.TB) (*services.Services, *postgresServer) {
	tb.Helper()
	e.count(tb)
	e.start.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		e.services, e.err = services.Start(ctx, nil)
		if e.err != nil {
			return
		}
		e.server, e.err = openServer(ctx, e.services)
	})
	if e.services == nil {
		missing(tb, e.err)
	}
	if e.err != nil {
		tb.Fatalf("preparing the PostgreSQL server for tests: %v", e.err)
	}
	return e.services, e.server
}

func (e *environment) count(tb testing.TB) {
	tb.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]struct{}{}
	}
	e.asked[tb.Name()] = struct{}{}
}

// missing ends a test that has no server: a build must not stay green because its
// servers are gone.
func missing(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("CI=true and %v", err)
	}
	tb.Skipf("skipped: %v", err)
}

// close stops the servers. The report is empty when no test asked for one.
func (e *environment) close() (report string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) == 0 {
		return "", nil
	}
	report = fmt.Sprintf("%d none", len(e.asked))
	if e.services == nil {
		return report, nil
	}
	report = fmt.Sprintf("%d %v", len(e.asked), e.services)
	if e.server != nil {
		err = e.server.close()
	}
	return report, errors.Join(err, e.services.Close())
}
