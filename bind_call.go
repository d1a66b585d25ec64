package fencepost

import (
	"context"
	"reflect"
	"sync"
)

// callBounds are the contexts that bound single calls under one lease (see Lease.bound). Work under a lease often
// passes the same context to call after call. So the last context that was passed is kept together with the one that
// it is bound by, until the lease ends or a call passes another. Making a bound context for each call would double the
// allocations of a write.
type callBounds struct {
	mu   sync.Mutex
	kept *callBound
}

// callBound is a context that ends with the caller's or with the lease.
type callBound struct {
	caller, ctx context.Context //nolint:containedctx // ctx is the bound one; both are for calls that pass caller again
	stop        context.CancelFunc
	calls       int // that run under it
}

// boundCall is bound for one call, which ends with endCall.
func (l *Lease) boundCall(ctx context.Context) *callBound {
	comparable := reflect.ValueOf(ctx).Comparable() // Go panics if it compares others
	l.bounds.mu.Lock()
	defer l.bounds.mu.Unlock()
	kept := l.bounds.kept
	if kept != nil && comparable && kept.caller == ctx && kept.ctx.Err() == nil {
		kept.calls++
		return kept
	}
	b := &callBound{caller: ctx, calls: 1}
	b.ctx, b.stop = l.bound(ctx)
	if comparable && (kept == nil || kept.calls == 0) {
		l.bounds.kept = b
		if kept != nil {
			kept.stop()
		}
	}
	return b
}

// endCall ends a call. A context that is not kept ends with it.
func (l *Lease) endCall(b *callBound) {
	l.bounds.mu.Lock()
	defer l.bounds.mu.Unlock()
	b.calls--
	if b != l.bounds.kept {
		b.stop()
	}
}
