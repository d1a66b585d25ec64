package advisory

import (
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"
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
	// Namespace keeps the resources of one application apart from those of others in the same database: 1 to 64 bytes. Default
	// "default".
	Namespace string
	// Label is shown to those who find a resource held, and by pg_stat_activity as the session's application_name. PostgreSQL cuts it
	// after 63 bytes. Default: host name and process id.
	Label string
	// TTL is how long PostgreSQL keeps the session of a process that it hears nothing from (idle_session_timeout, from version
	// 14 on), and so the leases of one that was stopped. The process itself trusts its leases for a little less, counted from
	// the last answer. From 10 ms to 24 h. Default 30 s.
	TTL time.Duration
	// ProbeEvery is the pause after which a session that has nothing else to ask asks for a sign of life. It and AnswerWithin
	// together are the time within which a silent loss is noticed. Default: 1 s, and at most a third of the TTL.
	ProbeEvery time.Duration
	// AnswerWithin is how long PostgreSQL may take to answer the session, which asks nothing that waits for others. After it
	// the session is given up. It and ProbeEvery together stay below the TTL. Default: 2 s, and at most what that leaves.
	AnswerWithin time.Duration
	// LookEvery is how often whoever waits looks without having been told. Who waits is told of releases; of a holder's session that ended
	// nobody tells. Default 1 s.
	LookEvery time.Duration
	// Linger is how long the connection is kept once nothing is held and awaited, for the next who asks. No goroutine keeps
	// it. Default: 5 s, and at most half of the TTL.
	Linger time.Duration
	// Logger takes what happens in the background: losses. Default: nothing is logged.
	Logger *slog.Logger
	// Lost is called once for each lease that ended other than by its release, from a goroutine of its own. Default: not called.
	Lost func(l *Lease, cause *LostError)
	// WallClock reads this host's wall clock, for those who want to see what a step of it does. It must be safe for concurrent
	// use. Default: time.Now.
	WallClock func() time.Time
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the locker's.
type AcquireOptions struct {
	// Label is what the lease tells of its holder. Others see that of the session, the locker's. Default: the locker's.
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
	case len(o.Namespace) > MaxNamespaceBytes || !isText(o.Namespace):
		return invalidf("the namespace is not 1 to %d bytes of UTF-8 without U+0000", MaxNamespaceBytes)
	case !isText(o.Label):
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

// trusted is how long after the last sign of life a lease may be relied on: one hundredth less for clocks that run at different
// rates, and 2 ms for their grain.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

func checkResource(resource string) error {
	if resource == "" || len(resource) > MaxResourceBytes || !isText(resource) {
		return invalidf("a resource is 1 to %d bytes of UTF-8 without U+0000", MaxResourceBytes)
	}
	return nil
}

func isText(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}
