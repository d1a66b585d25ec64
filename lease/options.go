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
	// MinTTL is the shortest TTL: below it the drift margin would use up the lease.
	MinTTL = 10 * time.Millisecond
	// MaxTTL is the longest TTL: a holder that died must not block a resource forever.
	MaxTTL = 24 * time.Hour
)

// Options are the settings of a [Manager]. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// Prefix begins every key: at most MaxPrefixBytes bytes of UTF-8 without braces. Default "fencepost".
	Prefix string
	// Label is shown to callers that find the lease held. Default: host name and process id.
	Label string
	// CounterIdle is the time without a grant after which a counter expires, at least MaxTTL. Set it only if a fence
	// decides about tokens, because a counter that has expired restarts at 1. Default 0: counters never expire.
	CounterIdle time.Duration
	// PollEvery is the mean pause between two tries of a waiting Acquire that cannot be notified: while Redis is
	// unavailable, or if subscribing is not allowed. At least 1 ms. Each pause is drawn from half to one and a half
	// times PollEvery. Default 50 ms.
	PollEvery time.Duration
	// NoQueue gives the lease to the caller that asks first after a release. The waiters are still notified in order,
	// but nothing is reserved for them. All managers of a prefix should agree on it. Default: first come, first served.
	NoQueue bool
	// ReleaseTimeout bounds a release, which runs on a context of its own, and the clean-up after
	// an acquire whose reply was lost. Default 5 s.
	ReleaseTimeout time.Duration
	// Durability requires more of a grant than that the answering server has it. Default: nothing more.
	Durability Durability
	// Logger receives what happens in the background: losses and failed renewals. Default: nothing is logged.
	Logger *slog.Logger
	// Hooks are called on the same occasions. Default: none.
	Hooks Hooks
	// WallClock reads this host's wall clock; tests can simulate a step of the clock with it. Elapsed time is the
	// largest of what it, the monotonic clock and the clock that keeps running during a suspension report. So a clock
	// set here can end leases early and never late. It must be safe for concurrent use. Default: time.Now.
	WallClock func() time.Time

	clock clocks
}

// Durability has a grant confirmed by replicas (WAIT) or by append-only files (WAITAOF, Redis 7.2), in the same round
// trip. A grant that is not confirmed in time is given back, and the acquire returns ErrUnavailable.
//
// It makes it more likely, but not certain, that a lease survives a failover: the promoted replica need not be one that
// confirmed, and renewals are not confirmed. It does not replace the fence.
//
// It needs a *redis.Client, because the confirmation covers the connection that wrote. NewManager refuses other clients
// with ErrInvalid.
type Durability struct {
	// Replicas is the number of replicas that must confirm. Default 0: none.
	Replicas int
	// LocalAOF requires the server to confirm that its append-only file is on disk, and the Replicas to confirm that
	// theirs are. Default false.
	LocalAOF bool
	// Timeout bounds the confirmation, from 1 ms. Default 100 ms.
	Timeout time.Duration
}

func (d Durability) asked() bool { return d.Replicas > 0 || d.LocalAOF }

// Hooks are called about what happens to leases in the background. Each is called from its own goroutine with no lock
// held, so it may call the lease. A nil field is skipped. Hooks must not block for long and must be safe for concurrent
// use.
type Hooks struct {
	// RenewalLate: half of the TTL has passed since the last confirmed grant or renewal. Called once for each such gap.
	// err is the last failure; it is nil while a renewal is still in flight.
	RenewalLate func(l *Lease, since time.Duration, err error)
	// Lost: the lease ended other than by release. Called once.
	Lost func(l *Lease, cause *LostError)
}

// AcquireOptions are the settings of one acquire. The zero value, and a nil pointer, mean the
// defaults.
type AcquireOptions struct {
	// Label overrides the manager's label. Default: the manager's.
	Label string
	// RenewEvery is the pause between two renewals. RenewEvery plus the drift margin must stay below the TTL. Default:
	// a third of the TTL.
	RenewEvery time.Duration
	// NoRenewal turns automatic renewal off; the holder calls Renew. Default false.
	NoRenewal bool
	// MaxHold ends the lease that long after its grant, regardless of renewals. Default 0: no limit.
	MaxHold time.Duration
	// ProgressEvery makes renewal depend on the work: the lease is renewed only if Progress was called within that
	// time, so a job that hangs loses its lease, at most ProgressEvery + TTL after the last Progress. Default 0: not
	// required.
	ProgressEvery time.Duration
	// Floor is a token that the issued token must exceed, for example the fence's token. Default 0: none.
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
		v.clock = newSystemClocks(v.WallClock)
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

// DriftMargin returns how long before the end of its TTL a holder gives a lease up: one hundredth of the TTL for clocks
// that run at different rates, plus 2 ms for the granularity of Redis's expiry.
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
		return invalidf("RenewEvery %v and the drift margin %v leave no time in a TTL of %v", every, DriftMargin(ttl), ttl)
	}
	return nil
}

// milliseconds rounds up, so that a duration never shrinks on its way to Redis.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
