package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
)

// outcome calls the event functions for a call's error, once per call. It ends the leases that PostgreSQL has refused
// as stale, among those that the call was given and those that its context carries.
func (s *Store) outcome(ctx context.Context, about subject, err error) error {
	if err == nil {
		return nil
	}
	s.outcomeUnknown(ctx, about, err)
	var lost *LostError
	if errors.As(err, &lost) && lost.Reason == ReasonStale {
		return err // PostgreSQL said so earlier
	}
	if told := (*toldError)(nil); errors.As(err, &told) {
		return err // reported by the inner call that met it
	}
	// The fence knows resources by their full names; the rest of this package does not.
	prefix := s.opts.Namespace + ":"
	var stale *StaleError
	var missing *NotEnteredError
	switch {
	case errors.As(err, &stale):
		full := stale.Resource
		stale.Resource = strings.TrimPrefix(full, prefix)
		endStale(ctx, about.leases, full, stale)
	case errors.As(err, &missing):
		missing.Resource = strings.TrimPrefix(missing.Resource, prefix)
		stale = &StaleError{Resource: missing.Resource}
	}
	if stale == nil {
		return err
	}
	if s.opts.Events.Stale != nil {
		s.opts.Events.Stale(ctx, stale)
	}
	return &toldError{err}
}

// toldError is a refusal that has been reported. It has the resource's name without the namespace. Outer calls return
// it without reporting it again.
type toldError struct{ error }

// Unwrap returns the refusal.
func (e *toldError) Unwrap() error { return e.error }

// endStale ends the leases that the fence has refused.
func endStale(ctx context.Context, leases []*Lease, full string, stale *StaleError) {
	for _, l := range leases {
		l.refused(full, stale)
	}
	for h := heldIn(ctx); h != nil; h = h.outer {
		for _, l := range h.leases {
			l.refused(full, stale)
		}
	}
}

// refused ends the lease if the fence has refused the token of its current claim. A lease that is being lifted, or may
// have been, is not ended: the fence may carry its claim.
func (l *Lease) refused(full string, why *StaleError) {
	if why.Row || full != l.full {
		return
	}
	select {
	case l.turnToLift() <- struct{}{}:
	default:
		return
	}
	c := l.Claim()
	over := l.lift == (Claim{}) && (why.Token == c.Token || why.Current > c.Token)
	<-l.turnToLift()
	if over {
		l.hold.Abandon(ReasonStale, why)
	}
}

// over returns why one of the leases is over, or nil. Callers check it before they send, so that nothing is sent past a
// deadline.
func over(leases []*Lease) error {
	for _, l := range leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// lostOr adds the loss of a lease to an error that may be its consequence.
func lostOr(leases []*Lease, err error) error {
	// A loss does not tell whether the write was committed.
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	if lost := over(leases); lost != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

// idleIsLost turns the error of a transaction that PostgreSQL ended for being idle into the loss of the lease. Its
// holder had been stopped, and may have been overtaken by then.
func idleIsLost(leases []*Lease, err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != codeIdleInTransaction {
		return err
	}
	return &LostError{Resource: leases[0].resource, Token: leases[0].Token(), Reason: ReasonIdle, Err: server}
}

// protectionSays turns a protected table's refusal of the function's own SQL into an error of this package. The
// function's error stays in the chain.
func protectionSays(ctx context.Context, err error) error {
	var server *pgconn.PgError
	if errors.Is(err, ErrStale) || !errors.As(err, &server) || server.Code != codeStale && server.Code != codeNotEntered {
		return err
	}
	return fmt.Errorf("%w: %w", pgclaim.GuardError(ctx, server), err)
}

// connectionIsUnavailable adds ErrUnavailable to a function's error if the connection ended. No COMMIT was sent, so
// nothing was written.
func connectionIsUnavailable(ctx context.Context, tx pgx.Tx, err error) error {
	if !tx.Conn().IsClosed() || ctx.Err() != nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: the connection ended inside the transaction: %w", ErrUnavailable, err)
}

// unavailable returns the error of an acquire whose claim failed: nothing was acquired, whatever the outcome of the
// claim. A fence that was raised without a holder is harmless.
func unavailable(ctx context.Context, err error) error {
	if errors.Is(err, ErrOutcomeUnknown) {
		return withEnd(ctx, fmt.Errorf("%w: %w", ErrUnavailable, notWritten{err}))
	}
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// notDrawn is unavailable for a claim whose token is drawn from the fence.
func notDrawn(ctx context.Context, err error) error {
	if errors.Is(err, ErrStale) {
		return fmt.Errorf("%w: the fence carries the highest possible token: %w", ErrTokenRegressed, err)
	}
	return unavailable(ctx, err)
}

// withEnd makes an error match the error of ctx as well, if ctx has ended.
func withEnd(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// joined is errors.Join with a text of one line. Errors that are nil are left out.
func joined(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return severalErrors(errs)
}

// severalErrors is two or more errors, none of them nil.
type severalErrors []error

func (e severalErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors, so that each is matched.
func (e severalErrors) Unwrap() []error { return e }

// notWritten wraps an ErrOutcomeUnknown once it is known that nothing was written, or once that does not matter. It no
// longer matches ErrOutcomeUnknown, but everything else that the error matched.
type notWritten struct{ err error }

func (e notWritten) Error() string {
	return strings.Replace(e.err.Error(), ErrOutcomeUnknown.Error()+": ", "", 1)
}

// Is reports whether target is in the chain and is not [ErrOutcomeUnknown].
func (e notWritten) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.err, target)
}
