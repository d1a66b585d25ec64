package fencepost

import (
	"context"

	"github.com/fencepost-pg/fencepost/internal/pgledger"
)

// DoOnce runs fn once for a key. It reads the ledger, acquires the lease of the resource with the store's settings,
// does what [Once] does in a transaction that also claims the token, as in [Store.Do], and releases the lease, even if
// fn panics or calls runtime.Goexit. A recorded result costs one round
// trip to PostgreSQL. It needs no lease, so nothing is sent to Redis and the call does not wait for another holder.
//
// nil means that the work has been committed, by this call or an earlier one, even if the release failed. A failed
// release is logged, and the lease then ends with its TTL.
//
// Errors other than fn's are those of Once and [Store.Acquire], and ErrInvalid for a nil store or function. If the work
// fails and the release fails as well, errors.Is finds both errors. ErrOutcomeUnknown is returned without the error of
// the release: call again with the same key. ctx bounds the whole call except the release. DoOnce is safe for
// concurrent use. Calls with the same key run fn one after the other, until one of them has been committed.
func DoOnce[R any](
	ctx context.Context, s *Store, resource, key string, request any, fn OnceFunc[R],
) (OnceResult[R], error) {
	if s == nil || fn == nil {
		return OnceResult[R]{}, invalidf("once needs a store and a function")
	}
	raw, recorded, err := s.doOnce(ctx, resource, key, request, encoded(fn))
	return onceResult[R](key, raw, recorded, err)
}

// doOnce reads the ledger before it acquires.
func (s *Store) doOnce(
	ctx context.Context, resource, key string, request any, work OnceFunc[[]byte],
) (result []byte, recorded bool, err error) {
	full, err := s.qualify(resource)
	if err != nil {
		return nil, false, err
	}
	e, err := s.entry(full, key, request)
	if err != nil {
		return nil, false, err
	}
	if err := s.checkHeld(ctx, resource, full); err != nil {
		return nil, false, err
	}
	if result, recorded, err = pgledger.Look(ctx, s.pool, e); err != nil || recorded {
		return result, recorded, err
	}
	return s.doRecorded(ctx, e, work, func(o *TxOptions, fn TxFunc) error { return s.do(ctx, resource, full, o, fn) })
}
