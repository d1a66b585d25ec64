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
	"github.com/fencepost-pg/fencepost/internal/pgledger"
)

// OnceFunc is work that must take effect at most once. It is a [TxFunc] with a result. The result is encoded with
// encoding/json and decoded again before the caller gets it, so a retry gets the same value as the first call.
type OnceFunc[R any] func(ctx context.Context, tx pgx.Tx) (R, error)

// OnceResult is the result of the work of a key.
type OnceResult[R any] struct {
	Value R
	// Recorded reports whether Value was read from the ledger. Either the work had been done before this call, or the
	// reply to this call's COMMIT was lost and the ledger has its result.
	Recorded bool
}

// Once runs fn as [Store.Tx] does, guarded by the lease, unless the work named by key has already been done. In that
// case it returns the first result and does not run fn. Key, work and result are committed together. If the outcome of
// a call is unknown, call Once again with the same key. Another process may do so as well. The lease may be this one, a
// later one, or one that is over, because the ledger is read before the guard.
//
// A key is 1 to 512 bytes of UTF-8 and belongs to the namespace. request describes the work, as any value that
// encoding/json can encode. The order of its fields does not matter. A result is at most 64 KiB of JSON. Keys are kept
// for at least [OnceWindow], and after that until [Store.PurgeOnce] deletes them. A retry after the deletion does the
// work again.
//
// Errors other than fn's are those of [Store.Tx] and the following. ErrHeldByCaller is returned before the ledger is
// read. ErrKeyReused says that the key has been used with another request, or under a lease of another resource.
// ErrInvalid is returned before anything is sent if the key or the request is invalid. It is returned after fn, and the
// transaction is rolled back, if the result cannot be encoded or is too long. ErrOutcomeUnknown is rarer than from Tx,
// because the ledger is read once more. If a recorded result does not fit R, the error comes from encoding/json, and
// the work was committed. ctx bounds the call.
func Once[R any](ctx context.Context, l *Lease, key string, request any, fn OnceFunc[R]) (OnceResult[R], error) {
	if l == nil || fn == nil {
		return OnceResult[R]{}, invalidf("once needs a lease and a function")
	}
	e, err := l.store.entry(l.full, key, request)
	if err != nil {
		return OnceResult[R]{}, err
	}
	if err := l.store.checkNested(ctx, []*Lease{l}); err != nil {
		return OnceResult[R]{}, err
	}
	raw, recorded, err := l.store.lookAndDo(ctx, l, e, encoded(fn))
	return onceResult[R](key, raw, recorded, err)
}

// encoded returns fn with its result encoded as JSON.
func encoded[R any](fn OnceFunc[R]) OnceFunc[[]byte] {
	return func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		value, err := fn(ctx, tx)
		if err != nil {
			return nil, err
		}
		return encodeResult(value)
	}
}

// onceResult decodes the result of the work of a key.
func onceResult[R any](key string, raw []byte, recorded bool, err error) (OnceResult[R], error) {
	if err != nil {
		return OnceResult[R]{}, err
	}
	out := OnceResult[R]{Recorded: recorded}
	if err := json.Unmarshal(raw, &out.Value); err != nil {
		return OnceResult[R]{}, fmt.Errorf("read the recorded result of key %q: %w", key, err)
	}
	return out, nil
}

// encodeResult encodes a result. It makes sure, before the commit, that the result can be decoded again.
func encodeResult[R any](value R) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, new(R))
	}
	if err != nil {
		return nil, invalidf("a result of type %T cannot be encoded as JSON and read back: %w", value, err)
	}
	return raw, nil
}

// entry returns the ledger entry that identifies the work. full is the resource's full name.
func (s *Store) entry(full, key string, request any) (pgledger.Entry, error) {
	canonical, err := canonicalJSON(request)
	if err != nil {
		return pgledger.Entry{}, invalidf("the request cannot be encoded: %w", err)
	}
	e := pgledger.Entry{Namespace: s.opts.Namespace, Key: key, Resource: full, Request: sha256.Sum256(canonical)}
	return e, e.Check()
}

// canonicalJSON encodes a value so that equal requests give equal bytes. The members of every object are sorted, even
// those that come from struct fields or from a json.RawMessage. Numbers keep their spelling.
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

// lookAndDo reads the ledger, and does the work if the ledger has no result.
func (s *Store) lookAndDo(
	ctx context.Context, l *Lease, e pgledger.Entry, work OnceFunc[[]byte],
) (result []byte, recorded bool, err error) {
	result, recorded, err = pgledger.Look(ctx, s.pool, e)
	switch {
	case err != nil:
		return nil, false, lostOr([]*Lease{l}, err)
	case recorded:
		return result, true, nil
	}
	return s.doRecorded(ctx, e, work, func(o *TxOptions, fn TxFunc) error { return s.TxWith(ctx, o, fn, l) })
}

// doRecorded does the work and records its result in one guarded transaction, which inTx runs, unless the ledger has a
// result by then. If the outcome is unknown, it reads the ledger once more.
func (s *Store) doRecorded(
	ctx context.Context, e pgledger.Entry, work OnceFunc[[]byte], inTx func(*TxOptions, TxFunc) error,
) (result []byte, recorded bool, err error) {
	var begun *pgledger.Begun // of the current attempt
	begin := &TxOptions{first: func(b *pgx.Batch) { begun = pgledger.QueueBegin(b, e) }}
	err = inTx(begin, func(ctx context.Context, tx pgx.Tx) (err error) {
		if result, recorded = begun.Result, begun.Done; recorded {
			return nil
		}
		if result, err = work(ctx, tx); err != nil {
			return err
		}
		return pgledger.End(ctx, tx, e, result)
	})
	if errors.Is(err, ErrOutcomeUnknown) {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.SettleFor)
		defer cancel()
		if found, ok, look := pgledger.Look(detached, s.pool, e); look == nil && ok {
			return found, true, nil
		}
		// A missing entry proves nothing: the transaction may still be in progress, or be on another server.
	}
	return result, recorded, err
}

// OnceWindow is the shortest time for which the ledger keeps a key: 24 h by the database's clock, counted from the end
// of its work.
const OnceWindow = pgledger.Window

// PurgeOnce deletes the keys of the store's namespace whose work ended longer ago than age, by the database's clock. It
// returns how many it deleted, even if it returns an error. It returns ErrInvalid for an age below OnceWindow. It
// deletes in portions and commits each one separately. Several processes may call it at the same time. Other errors are
// ErrUnavailable and ErrOutcomeUnknown; it may be called again after either. ctx bounds the call.
func (s *Store) PurgeOnce(ctx context.Context, age time.Duration) (purged int64, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: purge: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	purged, err = pgledger.Purge(ctx, conn.Conn(), s.opts.Namespace, age)
	fence.Discard(conn.Conn(), err)
	return purged, err
}
