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
	// Namespace separates the resources of one application from those of others that use the same servers. It is 1 to
	// 64 of the characters A-Z a-z 0-9 . _ -. It is part of the Redis keys and of the fences' resource names. Default
	// "default".
	Namespace string
	// TTL is how long a lease lasts without renewal, from 10 ms to 24 h. Default 30 s.
	TTL time.Duration
	// RenewEvery is the pause between two renewals. Default: a third of the TTL.
	RenewEvery time.Duration
	// PollEvery is the mean pause between two tries of a waiting Acquire that cannot be notified of its turn: while
	// Redis is unavailable, if it may not subscribe, and over a quorum. At least 1 ms. Default 50 ms. A store without
	// Redis does not poll, and setting it is ErrInvalid.
	PollEvery time.Duration
	// NoQueue gives the lease to the waiter that asks first after a release, instead of the one that has waited
	// longest. Waiters are still notified in their order. All stores of a namespace should use the same setting. A
	// quorum never has a queue. A store without Redis has no such choice, and setting it is ErrInvalid. Default: first
	// come, first served.
	NoQueue bool
	// Durability makes Redis confirm a grant, by replicas or append-only files, before the grant counts; see
	// [lease.Durability]. A lease is then more likely to survive a failover, but not certain to, so it is no substitute
	// for the fence. It needs a *redis.Client. It is ErrInvalid with a cluster, with a quorum, and without Redis.
	// Default: no confirmation.
	Durability lease.Durability
	// CounterIdle is how long Redis keeps a resource's counter after its last grant, at least 24 h. An expired counter
	// costs the next grant one more round trip and nothing else, because the fence remembers the token. Default 30
	// days.
	CounterIdle time.Duration
	// MaxIdle is how long a guarded transaction may be idle, or leave the server's data unacknowledged, before
	// PostgreSQL ends it. A holder that was stopped inside a transaction blocks the next one for up to this long. From
	// 1 ms to 24 h. Default: the longer of TTL and 30 s.
	MaxIdle time.Duration
	// SettleFor is how long a call tries to find out whether a transaction was committed after the reply to its COMMIT
	// was lost, before it returns ErrOutcomeUnknown. The end of the caller's context does not shorten it. From 1 ms to
	// 24 h. Default 5 s.
	SettleFor time.Duration
	// Label names the holder to callers that find a resource held. Default: host name and process id.
	Label string
	// Logger logs what happens in the background and what the store repairs by itself. Default: nothing is logged.
	Logger *slog.Logger
	// Events are functions that are called when something happens, for metrics. Default: none.
	Events Events
	// WallClock reads this host's wall clock. Set it to test what a step of that clock does. Elapsed time is the
	// largest value that it, the monotonic clock and the clock that keeps running during a suspension report. A clock
	// set here can therefore end leases early, but never late. It must be safe for concurrent use. Default: time.Now.
	WallClock func() time.Time
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the store's settings.
type AcquireOptions struct {
	// TTL overrides the store's TTL.
	TTL time.Duration
	// RenewEvery overrides the pause between two renewals. Default: the store's, or a third of TTL if TTL is set.
	RenewEvery time.Duration
	// NoRenewal lets the lease expire at the end of its TTL. Default false: the lease is renewed.
	NoRenewal bool
	// MaxHold ends the lease this long after its grant, even if it is renewed. It is ErrInvalid for leases on advisory
	// locks. Default 0: no limit.
	MaxHold time.Duration
	// ProgressEvery makes renewal depend on the work: the lease is renewed only while [Lease.Progress] has been called
	// within that time, so a job that hangs loses the lease, at most ProgressEvery + TTL after the last Progress. It
	// has no effect with NoRenewal. It is ErrInvalid for leases on advisory locks. Default 0: renewal does not depend
	// on progress.
	ProgressEvery time.Duration
	// ClaimWait is the longest that the claim waits for open guarded transactions under older tokens, of the last
	// holder or of a process that has its claim value. After that the acquire releases the lease and returns a
	// *FenceBusyError, which matches ErrHeld. The wait is one statement on the server, so the acquire waits for a
	// database that does not answer until ctx ends. Default 0: the claim waits until ctx ends.
	ClaimWait time.Duration
	// NoWait ends the acquire with ErrHeld at once if another holder has the lease, or if others queue for it. It does
	// not affect the claim, whose wait ClaimWait bounds. Default false: the acquire waits until ctx ends.
	NoWait bool
	// Label overrides the store's label.
	Label string
}

func (o *AcquireOptions) noWait() bool { return o != nil && o.NoWait }

// claimUntil returns when a claim that begins now stops waiting. It is zero if only ctx ends the wait.
func (o *AcquireOptions) claimUntil() time.Time {
	if o == nil || o.ClaimWait == 0 {
		return time.Time{}
	}
	return time.Now().Add(o.ClaimWait)
}

// check refuses invalid values that the lease layer does not check.
func (o *AcquireOptions) check() error {
	if o != nil && o.ClaimWait < 0 {
		return invalidf("ClaimWait %v is negative", o.ClaimWait)
	}
	return nil
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

// leaseOptions returns the settings of an acquire, with the store's as defaults.
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
	return o.TTL, &lease.AcquireOptions{
		Label: o.Label, RenewEvery: o.RenewEvery, NoRenewal: o.NoRenewal, MaxHold: o.MaxHold, ProgressEvery: o.ProgressEvery,
	}
}

// withoutRedis refuses settings that only Redis can carry out.
func (o *Options) withoutRedis() error {
	if o.PollEvery != 0 || o.NoQueue || o.Durability != (lease.Durability{}) {
		return invalidf("PollEvery, NoQueue and Durability are for leases in Redis")
	}
	return nil
}
