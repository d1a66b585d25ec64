package fencepost

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
)

// Options are the settings of a [Store]. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// Namespace keeps the resources of one application apart from those of others that use the same
	// servers: 1 to 64 of the characters A-Z a-z 0-9 . _ -. It enters Redis keys and the
	// resources of fences alike. Default "default".
	Namespace string
	// TTL is how long a lease lasts without renewal, from 10 ms to 24 h. Default 30 s.
	TTL time.Duration
	// RenewEvery is the pause between two renewals. Default: a third of the TTL.
	RenewEvery time.Duration
	// CounterIdle is how long Redis keeps a resource's counter after its last grant, at least 24 h. A
	// counter that expired costs one more round trip at the next grant and nothing else, since the
	// fence remembers. Default 30 days.
	CounterIdle time.Duration
	// MaxIdle is how long a guarded transaction may be idle, or leave the server's data
	// unacknowledged, before PostgreSQL ends it: a holder that was stopped inside a transaction
	// would block the next one for as long. From 1 ms to 24 h. Default: the longer of TTL and 30 s.
	MaxIdle time.Duration
	// SettleFor is how long a call goes on to find out whether a transaction was committed after the reply to
	// its COMMIT was lost, whatever the caller's context says by then, before it returns
	// ErrOutcomeUnknown. From 1 ms to 24 h. Default 5 s.
	SettleFor time.Duration
	// Label is shown to those who find a resource held. Default: host name and process id.
	Label string
	// Logger takes what happens in the background and what heals itself. Default: nothing is logged.
	Logger *slog.Logger
	// Events are called on the same occasions, for metrics. Default: none.
	Events Events
	// WallClock reads this host's wall clock, for those who want to see what a step of it does. Time that passes is
	// counted by the longest that it, the monotonic clock and the one that goes on during a suspension say, so a
	// clock put here can end leases early and never late. It must be safe for concurrent use. Default: time.Now.
	WallClock func() time.Time
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the store's.
type AcquireOptions struct {
	// TTL overrides the store's TTL.
	TTL time.Duration
	// RenewEvery overrides the pause between two renewals. Default: the store's, or a third of TTL
	// where TTL is given.
	RenewEvery time.Duration
	// NoRenewal leaves the lease to run out at the end of its TTL. Default: renewed.
	NoRenewal bool
	// Label overrides the store's label.
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
	if v.TTL == 0 {
		v.TTL = 30 * time.Second
	}
	if v.CounterIdle == 0 {
		v.CounterIdle = 30 * 24 * time.Hour
	}
	if v.MaxIdle == 0 {
		v.MaxIdle = max(v.TTL, 30*time.Second)
	}
	if v.SettleFor == 0 {
		v.SettleFor = 5 * time.Second
	}
	if v.Label == "" {
		host, _ := os.Hostname() // a label for people; an empty host name will do
		v.Label = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	return v
}

func (o *Options) validate() error {
	if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString(o.Namespace) {
		return invalidf("namespace %q is not 1 to 64 of the characters A-Z a-z 0-9 . _ -", o.Namespace)
	}
	if o.TTL < lease.MinTTL || o.TTL > lease.MaxTTL {
		return invalidf("a TTL of %v is outside %v to %v", o.TTL, lease.MinTTL, lease.MaxTTL)
	}
	if o.RenewEvery < 0 || o.RenewEvery >= o.TTL-lease.DriftMargin(o.TTL) {
		return invalidf("RenewEvery %v does not fit a TTL of %v", o.RenewEvery, o.TTL)
	}
	if o.SettleFor < time.Millisecond || o.SettleFor > lease.MaxTTL {
		return invalidf("SettleFor %v is outside 1ms to %v", o.SettleFor, lease.MaxTTL)
	}
	return checkMaxIdle(o.MaxIdle)
}

// leaseOptions are the acquire's settings, resolved against the store's.
func (s *Store) leaseOptions(opts *AcquireOptions) (time.Duration, *lease.AcquireOptions) {
	var o AcquireOptions
	if opts != nil {
		o = *opts
	}
	if o.RenewEvery == 0 && o.TTL == 0 {
		o.RenewEvery = s.opts.RenewEvery
	}
	if o.TTL == 0 {
		o.TTL = s.opts.TTL
	}
	return o.TTL, &lease.AcquireOptions{Label: o.Label, RenewEvery: o.RenewEvery, NoRenewal: o.NoRenewal}
}
