package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// FreeOptions say how a lease is taken from its holder.
type FreeOptions struct {
	Force    bool          // also if its holder has not been overtaken
	Handover bool          // only if somebody waits for it; implies Force
	Wait     time.Duration // how long the fence may wait for open transactions
	Label    string        // is recorded at the fence
}

// Freed says what Free did.
type Freed struct {
	Resource string      `json:"resource"`
	Done     []string    `json:"done"` // in this order, in sentences
	Holder   string      `json:"holder,omitempty"`
	Token    token.Token `json:"token,omitempty"` // of the lease that was taken away
	Fence    token.Token `json:"fence,omitempty"` // where the fence stands now
	Now      *Sight      `json:"now,omitempty"`
}

func (f *Freed) did(format string, args ...any) {
	f.Done = append(f.Done, fmt.Sprintf(format, args...))
}

// freeTries bounds how often the fence is read again because it was raised meanwhile.
const freeTries = 5

// Free takes a lease from its holder and hands it on: to the first waiter, or to nobody.
//
// The order is: the counter, so that the next grant is not refused; the fence, so that the holder can no longer write;
// the lease. If the fence cannot be raised, the lease is left alone. In any other order there would be a moment at
// which the lease is free and the old holder's claim still good, or at which the raised fence refuses the next holder.
// The lease is taken away only if it still has the token that was seen: a holder that was given another token has a
// claim that this fence does not refuse.
//
// Without Force only a lease whose holder has been overtaken is freed. What is refused matches ErrRefused. ErrHeld says
// that open transactions keep the fence where it is. On an error, the result says what was done before.
func (s *Site) Free(ctx context.Context, resource string, o *FreeOptions) (*Freed, error) {
	freed := &Freed{Resource: resource, Done: []string{}}
	seen, err := s.Look(ctx, resource)
	if err != nil {
		return freed, err
	}
	freed.Holder, freed.Token = seen.Lease.Label, seen.Lease.Token
	if nothing, err := s.mayFree(seen, o); nothing != "" || err != nil {
		if nothing != "" {
			freed.did("%s", nothing)
		}
		return freed, err
	}
	if seen.Fence == nil || seen.Fence.Token <= seen.Lease.Token || o.Force || o.Handover {
		if err := s.raise(ctx, seen, o, freed); err != nil {
			return freed, err
		}
	} else {
		freed.Fence = seen.Fence.Token
		freed.did("The fence was at %d already: the holder could not write.", seen.Fence.Token)
	}
	evicted, err := s.redis.Evict(ctx, seen.redis)
	switch {
	case err != nil:
		return freed, err
	case !evicted:
		freed.did("The lease had changed hands or ended meanwhile, and was left alone.")
	default:
		freed.did("The lease of %q was taken away, token %d.", seen.Lease.Label, seen.Lease.Token)
	}
	if freed.Now, err = s.Look(ctx, resource); err != nil {
		return freed, err
	}
	switch now := freed.Now.Lease; {
	case now.Standing == lease.Free:
		freed.did("Nobody waits: the lease is free.")
	case evicted:
		freed.did("The first waiter has it now, or is about to take it.")
	}
	return freed, nil
}

// mayFree refuses what may not be freed, and says if there is nothing to free.
func (s *Site) mayFree(seen *Sight, o *FreeOptions) (nothing string, err error) {
	l := seen.Lease
	overtaken := seen.Fence != nil && seen.Fence.Token > l.Token
	switch {
	case s.redis == nil && l.Standing != lease.Free:
		return "", fmt.Errorf("%w: an advisory lock ends with its session, which may have others: "+
			"SELECT pg_terminate_backend(%d)", ErrRefused, l.PID)
	case l.Standing == lease.Free:
		return "Nobody holds the lease: nothing was done.", nil
	case l.Standing == lease.Reserved:
		return fmt.Sprintf("The lease is reserved for a waiter for another %v: nothing was done.", l.Left()), nil
	case l.Standing == lease.Foreign:
		return "", fmt.Errorf("%w: the lease key was not written by fencepost, or never expires: delete it by hand "+
			"(docs/architecture.md names the keys); the fence keeps the order", ErrRefused)
	case o.Handover && l.Waiting == 0:
		return "", fmt.Errorf("%w: nobody waits for %q, so there is nobody to hand it over to", ErrRefused, seen.Resource)
	case !o.Force && !o.Handover && !overtaken:
		return "", fmt.Errorf("%w: %q holds the lease with token %d, and nobody has overtaken it; "+
			"it ends in %v unless it is renewed. To take it away all the same: --force",
			ErrRefused, l.Label, l.Token, l.Left())
	}
	return "", nil
}

// raise raises the counter and then the fence above the holder's token.
func (s *Site) raise(ctx context.Context, seen *Sight, o *FreeOptions, freed *Freed) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", pgerr.ErrUnavailable, err)
	}
	defer conn.Release()
	var stood token.Token
	if seen.Fence != nil {
		stood = seen.Fence.Token
	}
	above := max(stood, seen.Lease.Token)
	for range freeTries {
		target := above + 1
		if _, err := s.redis.RaiseCounters(ctx, []lease.Floor{{Resource: seen.Resource, Token: target}}); err != nil {
			return err
		}
		claim := fence.Claim{Resource: s.full(seen.Resource), Token: target, Nonce: token.NewNonce()}
		err := fence.Raise(ctx, conn.Conn(), claim, &fence.RaiseOptions{Label: o.Label, Wait: o.Wait})
		fence.Discard(conn.Conn(), err)
		var stale *fence.StaleError
		var jump *fence.JumpError
		switch {
		case err == nil:
			freed.Fence = target
			freed.did("The fence was raised from %d to %d: what %q still writes is refused.", stood, target, seen.Lease.Label)
			return nil
		case errors.As(err, &stale):
			above = stale.Current // the holder may have lifted it: its claim must not stay good
		case errors.As(err, &jump):
			above = jump.Current // the holder's own token is too far above to have been claimed
		case pgerr.TimedOut(err):
			return s.busy(ctx, seen.Resource, o.Wait)
		default:
			return err
		}
		if now, err := s.look(ctx, seen.Resource); err != nil {
			return err
		} else if now[0].Lease.Token != seen.Lease.Token {
			return fmt.Errorf("%w: the lease of %q changed hands meanwhile; look again", ErrRefused, seen.Resource)
		}
	}
	return fmt.Errorf("%w: the fence of %q is raised faster than this command can", pgerr.ErrUnavailable, seen.Resource)
}

// busy says which transactions keep a fence where it is.
func (s *Site) busy(ctx context.Context, resource string, waited time.Duration) error {
	open, err := s.openWork(ctx, resource)
	if err != nil {
		return err
	}
	var pids []string
	for _, w := range open {
		if w.Does != Waits {
			pids = append(pids, fmt.Sprint(w.PID))
		}
	}
	return fmt.Errorf("%w: open transactions have kept the fence of %q where it is for %v, so nothing was done "+
		"(pid %s; SELECT pg_terminate_backend(pid) ends one)", token.ErrHeld, resource, waited, strings.Join(pids, ", "))
}
