package advisory

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost-pg/fencepost/internal/encoding"
)

// Bounds of the options.
const (
	// MinTTL is the shortest TTL: a session needs time for its probes.
	MinTTL = 10 * time.Millisecond
	// MaxTTL is the longest TTL.
	MaxTTL = 24 * time.Hour
	// MaxNamespaceBytes is the longest namespace, in bytes.
	MaxNamespaceBytes = 64
	// MaxResourceBytes is the longest resource, in bytes of UTF-8.
	MaxResourceBytes = 512
	// MaxLabelBytes is the longest label that PostgreSQL shows whole.
	MaxLabelBytes = 63
)

// Options are the settings of a [Locker]. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// Namespace separates the resources of one application from those of others in the same database: 1 to 64 bytes.
	// Default "default".
	Namespace string
	// Label is shown to callers that find a resource held. pg_stat_activity shows it as the session's application_name.
	// PostgreSQL truncates it to 63 bytes. Default: host name and process id.
	Label string
	// TTL is how long PostgreSQL keeps a session that sends nothing (idle_session_timeout, from version 14 on), and so
	// the leases of a paused process. The process itself relies on its leases for a little less, counted from the last
	// reply. From 10 ms to 24 h. Default 30 s.
	TTL time.Duration
	// ProbeEvery is the pause after which an otherwise quiet session sends a probe. A silent loss is noticed within
	// ProbeEvery plus AnswerWithin. Default: 1 s, and at most a third of the TTL.
	ProbeEvery time.Duration
	// AnswerWithin is how long PostgreSQL may take to answer the session, whose statements never wait for others. After
	// that the session is given up. AnswerWithin plus ProbeEvery must stay below the TTL. Default: 2 s, and at most
	// what the TTL and ProbeEvery leave.
	AnswerWithin time.Duration
	// LookEvery is how often a waiter looks without having been notified. Waiters are notified of releases, but not of
	// the end of a holder's session. Default 1 s.
	LookEvery time.Duration
	// Linger is how long the connection is kept for the next caller once nothing is held or awaited. No goroutine runs
	// for it. Default: 5 s, and at most half of the TTL.
	Linger time.Duration
	// Logger receives what happens in the background: losses. Default: nothing is logged.
	Logger *slog.Logger
	// Lost is called once, from its own goroutine, for each lease that ended other than by release. Default: not
	// called.
	Lost func(l *Lease, cause *LostError)
	// WallClock reads this host's wall clock; tests can simulate a step of the clock with it. It must be safe for
	// concurrent use. Default: time.Now.
	WallClock func() time.Time
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the locker's.
type AcquireOptions struct {
	// Label is the label that the lease reports. Other processes see the session's label, which is the locker's.
	// Default: the locker's.
	Label string
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Namespace == "" {
		v.Namespace = "default"
	}
	if v.Label == "" {
		host, _ := os.Hostname() // a label for people; an empty host name will do
		v.Label = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if v.TTL == 0 {
		v.TTL = 30 * time.Second
	}
	if v.ProbeEvery == 0 {
		v.ProbeEvery = min(time.Second, v.TTL/3)
	}
	if v.AnswerWithin == 0 {
		v.AnswerWithin = min(2*time.Second, trusted(v.TTL)-v.ProbeEvery)
	}
	if v.LookEvery == 0 {
		v.LookEvery = time.Second
	}
	if v.Linger == 0 {
		v.Linger = min(5*time.Second, v.TTL/2)
	}
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	return v
}

func (o *Options) validate() error {
	switch {
	case len(o.Namespace) > MaxNamespaceBytes || !encoding.IsText(o.Namespace):
		return invalidf("the namespace is not 1 to %d bytes of UTF-8 without U+0000", MaxNamespaceBytes)
	case !encoding.IsText(o.Label):
		return invalidf("the label is not UTF-8 without U+0000")
	case o.TTL < MinTTL || o.TTL > MaxTTL:
		return invalidf("a TTL of %v is outside %v to %v", o.TTL, MinTTL, MaxTTL)
	case o.ProbeEvery <= 0 || o.AnswerWithin <= 0 || o.ProbeEvery > trusted(o.TTL)-o.AnswerWithin:
		return invalidf("ProbeEvery %v and AnswerWithin %v do not fit a TTL of %v", o.ProbeEvery, o.AnswerWithin, o.TTL)
	case o.LookEvery < time.Millisecond:
		return invalidf("LookEvery %v is below 1ms", o.LookEvery)
	case o.Linger < 0 || o.Linger > o.TTL/2:
		return invalidf("a Linger of %v is not within half of the TTL, %v", o.Linger, o.TTL/2)
	}
	return nil
}

// trusted is how long after the last reply a lease may be relied on: the TTL less one hundredth, for clocks that run at
// different rates, and less 2 ms, for their granularity.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

func checkResource(resource string) error {
	if resource == "" || len(resource) > MaxResourceBytes || !encoding.IsText(resource) {
		return invalidf("a resource is 1 to %d bytes of UTF-8 without U+0000", MaxResourceBytes)
	}
	return nil
}
