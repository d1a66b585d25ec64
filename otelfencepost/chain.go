package otelfencepost

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost"
)

// Chain returns events that call those of each argument, in that order. A field that is nil in all of them stays nil,
// and costs nothing.
func Chain(events ...fencepost.Events) fencepost.Events {
	type e = fencepost.Events
	type duration = time.Duration
	return fencepost.Events{
		Acquired:       chain3(events, func(e e) call3[string, fencepost.Token, duration] { return e.Acquired }),
		Refused:        chain3(events, func(e e) call3[string, duration, error] { return e.Refused }),
		Released:       chain3(events, func(e e) call3[string, fencepost.Token, duration] { return e.Released }),
		RenewedLate:    chain4(events, func(e e) call4[string, fencepost.Token, duration, error] { return e.RenewedLate }),
		Lost:           chain3(events, func(e e) call3[string, fencepost.Token, *fencepost.LostError] { return e.Lost }),
		Stale:          chain1(events, func(e e) call1[*fencepost.StaleError] { return e.Stale }),
		Reseed:         chain3(events, func(e e) call3[string, fencepost.Token, fencepost.Token] { return e.Reseed }),
		Regression:     chain3(events, func(e e) call3[string, fencepost.Token, fencepost.Token] { return e.Regression }),
		ClaimWait:      chain3(events, func(e e) call3[string, fencepost.Token, duration] { return e.ClaimWait }),
		Transacted:     chain3(events, func(e e) call3[[]string, duration, error] { return e.Transacted }),
		Retried:        chain3(events, func(e e) call3[[]string, int, error] { return e.Retried }),
		Settled:        chain3(events, func(e e) call3[[]string, duration, error] { return e.Settled }),
		OutcomeUnknown: chain2(events, func(e e) call2[[]string, error] { return e.OutcomeUnknown }),
	}
}

// The kinds of fields, by what they are given besides the context.
type (
	call1[A any]          = func(context.Context, A)
	call2[A, B any]       = func(context.Context, A, B)
	call3[A, B, C any]    = func(context.Context, A, B, C)
	call4[A, B, C, D any] = func(context.Context, A, B, C, D)
)

func chain4[A, B, C, D any](
	events []fencepost.Events, field func(fencepost.Events) call4[A, B, C, D],
) call4[A, B, C, D] {
	all := set(events, field, func(f call4[A, B, C, D]) bool { return f != nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, a A, b B, c C, d D) {
		for _, f := range all {
			f(ctx, a, b, c, d)
		}
	}
}

func chain3[A, B, C any](events []fencepost.Events, field func(fencepost.Events) call3[A, B, C]) call3[A, B, C] {
	all := set(events, field, func(f call3[A, B, C]) bool { return f != nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, a A, b B, c C) {
		for _, f := range all {
			f(ctx, a, b, c)
		}
	}
}

func chain2[A, B any](events []fencepost.Events, field func(fencepost.Events) call2[A, B]) call2[A, B] {
	all := set(events, field, func(f call2[A, B]) bool { return f != nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, a A, b B) {
		for _, f := range all {
			f(ctx, a, b)
		}
	}
}

func chain1[A any](events []fencepost.Events, field func(fencepost.Events) call1[A]) call1[A] {
	all := set(events, field, func(f call1[A]) bool { return f != nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, a A) {
		for _, f := range all {
			f(ctx, a)
		}
	}
}

// set returns one field of each of the events, without those that are nil.
func set[F any](events []fencepost.Events, field func(fencepost.Events) F, isSet func(F) bool) []F {
	var all []F
	for _, e := range events {
		if f := field(e); isSet(f) {
			all = append(all, f)
		}
	}
	return all
}
