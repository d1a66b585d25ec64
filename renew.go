package fencepost

import (
	"context"
	"time"
)

// Renew gives the lease a new TTL, from 10 ms to 24 h, counted from before the call is sent; automatic renewals use it
// from then on. Use it for leases acquired with NoRenewal, and before a step that takes longer than usual. A shorter
// TTL applies at once, whether Redis answers or not. MaxHold still counts from the grant, and Renew does not count as
// Progress.
//
// ctx bounds the call, and so does the lease's deadline: if the answer comes after the deadline, the lease is lost.
// Renew returns ErrInvalid, before anything is sent, for a TTL that is out of range or too short for RenewEvery, and
// for leases on advisory locks, which have no TTL of their own. Other errors are ErrLost and ErrUnavailable. After
// ErrUnavailable the lease is held until its current deadline. Renew is safe for concurrent use. Only one renewal runs
// at a time.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error { return l.grant.Renew(ctx, ttl) }
