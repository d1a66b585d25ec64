package lease

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// Bounds of a lease's TTL.
const (
	// MinTTL is the shortest TTL: below it the drift margin would eat the lease.
	MinTTL = 10 * time.Millisecond
	// MaxTTL is the longest TTL: a holder that died must not block a resource for ever.
	MaxTTL = 24 * time.Hour
)

// Options are the settings of a [Manager]. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// Prefix begins every key: at most MaxPrefixBytes of UTF-8 without braces.
	// Default "fencepost".
	Prefix string
	// Label is shown to those who find the lease held. Default: host name and process id.
	Label string
	// CounterIdle is the time without a grant after which a counter expires, at least MaxTTL. Set
	// it only where a fence decides about tokens, since a counter that expired starts again at 1.
	// Default 0: counters never expire.
	CounterIdle time.Duration
	// PollEvery is the mean pause between two tries of a waiting Acquire where it cannot be told: while
	// Redis is unavailable, or where it may not subscribe. At least 1 ms; each pause is drawn between
	// half and one and a half times that. Default 50 ms.
	PollEvery time.Duration
	// NoQueue lets whoever asks first after a release have the lease. The waiters are told in their order all
	// the same, and nothing is kept for them. All managers of a prefix should agree on it. Default: first
	// come, first served.
	NoQueue bool
	// ReleaseTimeout bounds a release, which runs on a context of its own, and the clean-up after
	// an acquire whose reply was lost. Default 5 s.
	ReleaseTimeout time.Duration
	// Durability asks more of a grant than that the server answering has it. Default: no more.
	Durability Durability
	// Logger takes what happens in the background: losses and failed renewals. Default: nothing is logged.
	Logger *slog.Logger
	// Hooks are called on the same occasions. Default: none.
	Hooks Hooks
	// WallClock reads this host's wall clock, for those who want to see what a step of it does. Time that passes is
	// counted by the longest that it, the monotonic clock and the one that goes on during a suspension say, so a
	// clock put here can end leases early and never late. It must be safe for concurrent use. Default: time.Now.
	WallClock func() time.Time

	clock clock
}

// Durability has a grant confirmed by replicas (WAIT) or by append-only files (WAITAOF, Redis 7.2), in the
// same round trip. A grant that is not confirmed in time is given back: ErrUnavailable.
//
// It makes it likelier that a lease survives a failover, and cannot make it certain: the replica promoted need
// not be one that confirmed, and renewals are not confirmed. It is no substitute for the fence.
//
// It needs a *redis.Client, since the confirmation counts for the connection that wrote: NewManager refuses
// others with ErrInvalid.
type Durability struct {
	// Replicas is how many replicas have to confirm. Default 0: none.
	Replicas int
	// LocalAOF has the server confirm that its append-only file is on disk, and Replicas those of
	// theirs. Default false.
	LocalAOF bool
	// Timeout bounds the confirmation, from 1 ms. Default 100 ms.
	Timeout time.Duration
}

func (d Durability) asked() bool { return d.Replicas > 0 || d.LocalAOF }

// Hooks are told what happens to leases in the background. Each is called from a goroutine of its
// own with no lock held, so it may call the lease; a nil field is skipped. They must not block for
// long and must be safe for concurrent use.
type Hooks struct {
	// RenewalLate: half of the TTL has gone since the last confirmed grant or renewal. Called once
	// for each such gap. err is the last failure, nil where a renewal is still under way.
	RenewalLate func(l *Lease, since time.Duration, err error)
	// Lost: the lease ended other than by its release. Called once.
	Lost func(l *Lease, cause *LostError)
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the
// defaults.
type AcquireOptions struct {
	// Label overrides the manager's label. Default: the manager's.
	Label string
	// RenewEvery is the pause between two renewals. It and the drift margin together must stay
	// below the TTL. Default: a third of the TTL.
	RenewEvery time.Duration
	// NoRenewal turns automatic renewal off; the holder calls Renew. Default: renewed.
	NoRenewal bool
	// MaxHold ends the lease that long after its grant, whatever renewals say. Default 0: no end.
	MaxHold time.Duration
	// ProgressEvery makes renewal depend on the work: the lease is renewed only while Progress has
	// been called within that time, so that a job that hangs loses it. Default 0: not asked for.
	ProgressEvery time.Duration
	// Floor is a token that the one issued must exceed, for instance what a fence carries.
	// Default 0: none.
	Floor token.Token
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Prefix == "" {
		v.Prefix = "fencepost"
	}
	if v.Label == "" {
		host, _ := os.Hostname() // a label for people; an empty host name will do
		v.Label = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if v.PollEvery == 0 {
		v.PollEvery = 50 * time.Millisecond
	}
	if v.ReleaseTimeout == 0 {
		v.ReleaseTimeout = 5 * time.Second
	}
	if v.Durability.Timeout == 0 {
		v.Durability.Timeout = 100 * time.Millisecond
	}
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	if v.clock == nil {
		v.clock = newSystemClock(v.WallClock)
	}
	return v
}

func (o *Options) validate() error {
	if err := checkPrefix(o.Prefix); err != nil {
		return err
	}
	if err := checkLabel(o.Label); err != nil {
		return err
	}
	switch {
	case o.CounterIdle != 0 && o.CounterIdle < MaxTTL:
		return invalidf("CounterIdle %v is below %v, the longest a lease may last", o.CounterIdle, MaxTTL)
	case o.PollEvery < time.Millisecond:
		return invalidf("PollEvery %v is below 1ms", o.PollEvery)
	case o.Durability.Replicas < 0 || o.Durability.Timeout < time.Millisecond:
		return invalidf("a Durability of %d replicas within %v", o.Durability.Replicas, o.Durability.Timeout)
	case o.ReleaseTimeout < 0:
		return invalidf("ReleaseTimeout %v is negative", o.ReleaseTimeout)
	}
	return nil
}

// DriftMargin returns how long before its TTL is over a holder gives a lease up: one hundredth of
// the TTL for clocks that run at different rates, and 2 ms for the granularity of Redis's expiry.
func DriftMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalidf("a TTL of %v is outside %v to %v", ttl, MinTTL, MaxTTL)
	}
	return nil
}

func checkRenewal(ttl, every time.Duration) error {
	switch {
	case every <= 0:
		return invalidf("RenewEvery %v is not positive", every)
	case every >= trusted(ttl): // not a sum, which could overflow
		return invalidf("RenewEvery %v and the drift margin %v leave nothing of a TTL of %v", every, DriftMargin(ttl), ttl)
	}
	return nil
}

// milliseconds rounds up, so that a duration never shrinks on its way to Redis.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
