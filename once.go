package fencepost

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// OnceFunc is work that is to take effect at most once: a [TxFunc] with a result. The result goes through
// encoding/json and back before anybody sees it, so that a retry gets what the first call got.
type OnceFunc[R any] func(ctx context.Context, tx pgx.Tx) (R, error)

// OnceResult is what came of the work of a key.
type OnceResult[R any] struct {
	Value R
	// Recorded tells that Value was read from the ledger: the work had been done before this call, or its own
	// commit was found there after the reply to it was lost.
	Recorded bool
}

// Once runs fn as [Store.Tx] does, guarded by the lease, unless the work named by key has been done: then it
// returns the first result and does not run fn. Key, work and result are committed together, so a call
// whose outcome is unknown is made again with the same key: by this process or another, under this lease,
// a later one, or none that is still held, since the ledger is read before the guard.
//
// A key is 1 to 512 bytes of UTF-8 and belongs to the namespace. request says what the work is to do, as
// anything that encoding/json can encode; the order of its fields does not matter. A result takes up to
// 64 KiB of JSON. Keys are kept for [OnceWindow] at least, then as [Store.PurgeOnce] leaves them: a retry
// that comes later does the work again.
//
// Errors besides fn's: those of [Store.Tx]; ErrKeyReused where the key has been used with another request or under a
// lease of another resource; ErrInvalid, before anything is sent for a key or request that cannot be, and after fn for a
// result that cannot be encoded or is too long, which rolls back. ErrOutcomeUnknown is rarer than from Tx: the
// ledger is asked once more. A recorded result that does not fit R is an error of encoding/json, and was
// committed. ctx bounds the call.
func Once[R any](ctx context.Context, l *Lease, key string, request any, fn OnceFunc[R]) (OnceResult[R], error) {
	if l == nil || fn == nil {
		return OnceResult[R]{}, invalidf("once needs a lease and a function")
	}
	if l.store.inOne != nil {
		return OnceResult[R]{}, errInOne
	}
	e, err := l.entry(key, request)
	if err != nil {
		return OnceResult[R]{}, err
	}
	raw, recorded, err := l.store.doOnce(ctx, l, e, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		value, err := fn(ctx, tx)
		if err != nil {
			return nil, err
		}
		return encodeResult(value)
	})
	if err != nil {
		return OnceResult[R]{}, err
	}
	out := OnceResult[R]{Recorded: recorded}
	if err := json.Unmarshal(raw, &out.Value); err != nil {
		return OnceResult[R]{}, fmt.Errorf("read the recorded result of key %q: %w", key, err)
	}
	return out, nil
}

// encodeResult sees to it, before anything commits, that the result can be read back.
func encodeResult[R any](value R) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, new(R))
	}
	if err != nil {
		return nil, invalidf("a result of %T does not go through JSON: %w", value, err)
	}
	return raw, nil
}

// entry is how the ledger knows the work.
func (l *Lease) entry(key string, request any) (fence.Entry, error) {
	canonical, err := canonicalJSON(request)
	if err != nil {
		return fence.Entry{}, invalidf("the request cannot be encoded: %w", err)
	}
	e := fence.Entry{Namespace: l.store.opts.Namespace, Key: key, Resource: l.full, Request: sha256.Sum256(canonical)}
	return e, e.Check()
}

// canonicalJSON encodes a value so that equal requests are equal bytes: the members of every object are sorted,
// also those that come from struct fields or from a json.RawMessage. Numbers stay as they are spelt.
func canonicalJSON(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// doOnce looks, does, and looks once more where it cannot tell whether it did.
func (s *Store) doOnce(ctx context.Context, l *Lease, e fence.Entry, work OnceFunc[[]byte]) (result []byte, recorded bool, err error) {
	result, recorded, err = fence.LookOnce(ctx, s.pool, e)
	switch {
	case err != nil:
		return nil, false, lostOr([]*Lease{l}, err)
	case recorded:
		return result, true, nil
	}
	var begun *fence.Begun // of the attempt under way
	begin := &TxOptions{first: func(b *pgx.Batch) { begun = fence.QueueBeginOnce(b, e) }}
	err = s.TxWith(ctx, begin, func(ctx context.Context, tx pgx.Tx) (err error) {
		if result, recorded = begun.Result, begun.Done; recorded {
			return nil
		}
		if result, err = work(ctx, tx); err != nil {
			return err
		}
		return fence.EndOnce(ctx, tx, e, result)
	}, l)
	if errors.Is(err, ErrOutcomeUnknown) {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.SettleFor)
		defer cancel()
		if found, ok, look := fence.LookOnce(detached, s.pool, e); look == nil && ok {
			return found, true, nil
		}
		// No entry proves nothing: the transaction may be in progress yet, or on another server.
	}
	return result, recorded, err
}

// OnceWindow is how long the ledger keeps a key at least, by the database's clock, counted from the end of its work.
const OnceWindow = fence.OnceWindow

// PurgeOnce forgets the keys of the store's namespace whose work ended longer ago than age, by the database's
// clock, and returns how many, also beside an error. An age below OnceWindow is ErrInvalid. It deletes in
// portions, each committed on its own, and may be called by several processes at once. Other errors:
// ErrUnavailable, ErrOutcomeUnknown, after which it may be called again. ctx bounds the call.
func (s *Store) PurgeOnce(ctx context.Context, age time.Duration) (purged int64, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: purge: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	return fence.PurgeOnce(ctx, conn.Conn(), s.opts.Namespace, age)
}
