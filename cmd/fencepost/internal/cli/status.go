package cli

import (
	"errors"

	"github.com/fencepost-pg/fencepost"
)

// The exit statuses. docs/operating.md lists them. 69, 75, 77 and 78 are those of sysexits.h; 79 to 81 lie just above
// its last one. A program under a lease passes its own status on, so all of ours but the first four are high.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitPending     = 3  // migrations are pending
	exitUnavailable = 69 // EX_UNAVAILABLE: Redis or PostgreSQL did not answer
	exitHeld        = 75 // EX_TEMPFAIL: another holder has the lease, try again later
	exitRefused     = 77 // EX_NOPERM: what was asked for is possible, but was not done
	exitUnfit       = 78 // EX_CONFIG: doctor found a fault, or a server failed conformance
	exitLost        = 79 // the lease was lost while the work ran
	exitStale       = 80 // the token has been overtaken
	exitUnknown     = 81 // the connection ended at COMMIT
)

const description = `Fencing tokens for PostgreSQL: stale workers are refused.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 migrations pending (migrate status), 69 a server is unavailable, 75 ` +
	`the lease is held by another, 77 refused, 78 a fault in the setup (doctor, conformance), 79 the lease was lost, ` +
	`80 the token is stale, 81 unknown whether it was committed. fencepost run passes on the status of its program, ` +
	`128 + n after signal n; 126 if it cannot be run, 127 if it is not found.

Servers are named by flag or by environment: FENCEPOST_POSTGRES_URL, DATABASE_URL or libpq's PGHOST and the like; ` +
	`FENCEPOST_REDIS_URL or REDIS_URL; ` +
	`or by a file with those variables, but not libpq's, which --settings or FENCEPOST_SETTINGS names.`

// statusError is an error with an exit status of its own. Without an error there is nothing to print.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// refused makes an error for something that was not done although it could be.
func refused(err error) error { return &statusError{exitRefused, err} }

// statusOf returns the exit status of a command that ended with err. What is known about a commit comes first, since
// that decides whether the work may be done again.
func statusOf(err error) int {
	if own := (*statusError)(nil); errors.As(err, &own) {
		return own.status
	}
	for _, outcome := range []struct {
		err    error
		status int
	}{
		{fencepost.ErrOutcomeUnknown, exitUnknown},
		{fencepost.ErrStale, exitStale},
		{fencepost.ErrLost, exitLost},
		{fencepost.ErrHeld, exitHeld},
		{fencepost.ErrUnavailable, exitUnavailable},
		{fencepost.ErrKeyReused, exitRefused},
		{fencepost.ErrRefused, exitRefused},
		{fencepost.ErrInvalid, exitUsage},
	} {
		if errors.Is(err, outcome.err) {
			return outcome.status
		}
	}
	if err != nil {
		return exitFailure
	}
	return exitOK
}
