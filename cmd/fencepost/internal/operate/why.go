package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Verdict says what becomes of a write under a token.
type Verdict string

// The verdicts.
const (
	Overtaken Verdict = "overtaken"     // a higher token was claimed
	Current   Verdict = "current"       // the fence carries this token
	Unclaimed Verdict = "never claimed" // the fence is below it, or there is none
)

// Reason says why a worker with a token is refused, or that it is not.
type Reason struct {
	Resource string      `json:"resource"`
	Token    token.Token `json:"token,omitempty"`
	Verdict  Verdict     `json:"verdict"`
	Says     []string    `json:"says"` // in sentences
	Sight    *Sight      `json:"sight"`
}

func (r *Reason) say(format string, args ...any) {
	r.Says = append(r.Says, fmt.Sprintf(format, args...))
}

// Why says what becomes of a write to a resource under a token. Without a token (0) it is the one of the lease.
func (s *Site) Why(ctx context.Context, resource string, tok token.Token) (*Reason, error) {
	seen, err := s.Look(ctx, resource)
	if err != nil {
		return nil, err
	}
	r := &Reason{Resource: resource, Token: tok, Sight: seen}
	if tok == 0 {
		r.Token = seen.Lease.Token
	}
	r.sayFence(s.namespace)
	r.sayLease()
	r.sayOpen()
	return r, nil
}

// sayFence compares the token with the fence.
func (r *Reason) sayFence(namespace string) {
	f := r.Sight.Fence
	switch {
	case f == nil:
		r.Verdict = Unclaimed
		r.say("%q has no fence in the namespace %q: nobody has claimed it, or its fence was collected. "+
			"Every token is refused until it is claimed.", r.Resource, namespace)
		r.say("If workers do work on it, look for another namespace or another database.")
	case r.Token == 0:
		r.Verdict = Current
		r.say("The fence of %q is at %d, claimed by %q %s: every lower token is refused.",
			r.Resource, f.Token, f.Label, at(f.ClaimedAt))
	case r.Token < f.Token:
		r.Verdict = Overtaken
		r.say("Token %d is refused: it was overtaken by token %d, which %q claimed %s.",
			r.Token, f.Token, f.Label, at(f.ClaimedAt))
		r.say("What the worker still has to write is lost to it; it has to acquire the lease again.")
	case r.Token == f.Token:
		r.Verdict = Current
		r.say("Token %d is the one that counts: %q claimed it %s.", r.Token, f.Label, at(f.ClaimedAt))
		r.say("A worker that is refused with this token has the same number from another grant (Redis forgot its counter), " +
			"or writes a row of another resource.")
	default:
		r.Verdict = Unclaimed
		r.say("Token %d was never claimed: the fence is at %d, claimed by %q %s.", r.Token, f.Token, f.Label, at(f.ClaimedAt))
	}
}

// sayLease tells who has the lease.
func (r *Reason) sayLease() {
	l, f := r.Sight.Lease, r.Sight.Fence
	switch l.Standing {
	case lease.Free:
		r.say("Nobody holds the lease now.")
	case lease.Held:
		switch {
		case l.Token == 0:
			r.say("%q holds the lease.", l.Label)
		case f != nil && l.Token < f.Token:
			r.say("%q holds the lease with token %d, for another %v, and is refused as well.", l.Label, l.Token, l.Left())
		default:
			r.say("%q holds the lease with token %d, for another %v.", l.Label, l.Token, l.Left())
		}
	case lease.Reserved:
		r.say("The lease is reserved for a waiter, for another %v.", l.Left())
	case lease.Minority:
		r.say("Some servers of the quorum have a lease of %q, but no majority: nobody holds it.", l.Label)
	case lease.Foreign:
		r.say("The lease key in Redis was not written by fencepost, or never expires: nobody can acquire.")
	}
	if l.Waiting > 0 {
		r.say("%d wait for it.", l.Waiting)
	}
	if f != nil && l.Counter != 0 && l.Counter < f.Token {
		r.say("The counter in Redis is at %d, below the fence: fencepost reseed raises it; the next grant does as well.",
			l.Counter)
	}
}

// sayOpen tells about open transactions.
func (r *Reason) sayOpen() {
	for _, w := range r.Sight.Open {
		since := ""
		if w.Since != nil {
			since = " since " + w.Since.UTC().Format(time.RFC3339)
		}
		switch w.Does {
		case Writes:
			r.say("Process %d (%s, %s) has a transaction open under the fence's token%s: the next claim waits for it.",
				w.PID, w.Application, w.State, since)
		case Claims:
			r.say("Process %d (%s, %s) is making a claim%s, which counts once it commits.", w.PID, w.Application, w.State, since)
		default:
			r.say("Process %d (%s) waits for those%s.", w.PID, w.Application, since)
		}
	}
}

func at(when time.Time) string { return "at " + when.UTC().Format(time.RFC3339) }
