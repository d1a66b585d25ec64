package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Environment variables that are read. The host process inherits them.
const (
	envWay           = "FENCEPOST_SERVICES"
	envPostgresURL   = "FENCEPOST_POSTGRES_URL"
	envRedisURL      = "FENCEPOST_REDIS_URL"
	envPostgresImage = "FENCEPOST_POSTGRES_IMAGE"
	envRedisImage    = "FENCEPOST_REDIS_IMAGE"
	envRedisProgram  = "FENCEPOST_REDIS_PROGRAM"
	envClusters      = "FENCEPOST_CLUSTERS"
)

// Way is a way to find or start servers.
type Way string

// The ways, in the order in which they are tried.
const (
	WayURL    Way = "url"    // named by address; used as they are
	WayDocker Way = "docker" // containers, through testcontainers-go
	WayLocal  Way = "local"  // installed programs as child processes
)

// startOrder is for servers that may be shared. ownOrder is for servers that a test harms, which must never be servers
// named by address.
var (
	startOrder = []Way{WayURL, WayDocker, WayLocal}
	ownOrder   = []Way{WayDocker, WayLocal}
)

// Attempt is one way that was tried and did not work.
type Attempt struct {
	Way Way
	Err error
}

// UnavailableError says that no way provided a server, which ways were tried, and why each did not work. Its text
// contains no password.
type UnavailableError struct {
	Attempts []Attempt
}

// Error names each way with its reason, one per line.
func (e *UnavailableError) Error() string {
	var b strings.Builder
	b.WriteString("no PostgreSQL and Redis to work with")
	for _, a := range e.Attempts {
		reason := strings.ReplaceAll(strings.TrimSpace(a.Err.Error()), "\n", "\n    ")
		fmt.Fprintf(&b, "\n  %s: %s", a.Way, reason)
	}
	return b.String()
}

// Unwrap returns the reasons.
func (e *UnavailableError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a.Err
	}
	return errs
}

// errOneURL means that only one of the two addresses is set. That is a mistake and ends the search; no address at all
// is normal.
var errOneURL = errors.New("one address without the other")

// eachWay calls try with the ways of order until one succeeds or ctx ends, and returns those that failed before. If
// FENCEPOST_SERVICES is set, only the way that it names is tried.
func eachWay(ctx context.Context, order []Way, try func(Way) error) (passed []Attempt, err error) {
	order, err = narrow(order)
	if err != nil {
		return nil, err
	}
	for _, w := range order {
		err := try(w)
		if err == nil {
			return passed, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("looking for servers (%s): %w", w, err)
		}
		passed = append(passed, Attempt{Way: w, Err: err})
		if errors.Is(err, errOneURL) {
			break
		}
	}
	return nil, &UnavailableError{Attempts: passed}
}

func narrow(order []Way) ([]Way, error) {
	forced := Way(os.Getenv(envWay))
	switch forced {
	case "":
		return order, nil
	case WayDocker, WayLocal:
		return []Way{forced}, nil
	case WayURL:
		if order[0] == WayURL {
			return []Way{WayURL}, nil
		}
		// A test's own server cannot be named by address; the other ways remain.
		return order, nil
	default:
		return nil, fmt.Errorf("%s is %q; it may be url, docker or local", envWay, string(forced))
	}
}
