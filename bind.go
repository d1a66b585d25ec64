package fencepost

import "context"

// Bind returns a context that ends when ctx ends or when the lease does, whichever comes first, and whose cause says
// which: the cause of ctx, or the lease's *LostError. It has the values of ctx and carries the lease (see
// [FromContext]). Use it for work under the lease that is not a transaction. [Lease.Context] ends only with the lease.
//
// If the lease is over, the context has already ended. Bind sends nothing. Call cancel once the work is done, to free
// its resources; cancel does not release the lease. If cancel ends the context, its cause is context.Canceled.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	return l.bound(holding(ctx, l))
}

// bound returns a copy of ctx that also ends with the lease, and then has the lease's cause.
func (l *Lease) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := l.cancels(cancel)
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// cancels makes the end of the lease call cancel, until stop is called.
func (l *Lease) cancels(cancel context.CancelCauseFunc) (stop func() bool) {
	if err := l.Err(); err != nil {
		cancel(err)
		return func() bool { return false }
	}
	held := l.hold.Context()
	return context.AfterFunc(held, func() { cancel(context.Cause(held)) })
}

// boundByAll is bound for any number of leases. Each lease is added once it has been acquired. All leases end the same
// context, because looking up a value takes longer the longer a chain of contexts is.
func boundByAll(ctx context.Context) (bounded context.Context, add func(*Lease), stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	add = func(l *Lease) { stops = append(stops, l.cancels(cancel)) }
	return ctx, add, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
