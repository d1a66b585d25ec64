package fenceposttest

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// patience bounds what the methods wait for.
const patience = 10 * time.Second

// TakeOver lets another worker overtake the holder of a resource, as after a pause that was longer than the TTL: it
// gets the resource, claims a higher token in PostgreSQL, and releases the resource at once. It returns its token. The
// holder is not told. Guarded writes under its token are refused from now on (ErrStale), and so is the COMMIT of a call
// whose claim was not made yet. If nobody holds the resource, another worker has simply been there in between.
//
// TakeOver waits, as every next holder does, for transactions in progress under the holder's token. Called within one,
// it would wait for itself: it fails the test after ten seconds.
func (e *Env) TakeOver(resource string) fencepost.Token {
	e.tb.Helper()
	ctx, cancel := context.WithTimeout(e.tb.Context(), patience)
	defer cancel()
	take := e.takeRedis
	if e.other == nil {
		take = e.raise
	}
	tok, err := take(ctx, resource)
	if err != nil {
		e.tb.Fatalf("take over %q: %v", resource, err)
	}
	return tok
}

// takeRedis frees the lease in Redis, as its TTL does, and acquires it.
func (e *Env) takeRedis(ctx context.Context, resource string) (fencepost.Token, error) {
	if err := e.redisAside.Del(ctx, lease.Key(e.prefix(), resource)).Err(); err != nil {
		return 0, err
	}
	l, err := e.other.Acquire(ctx, resource, nil)
	if err != nil {
		return 0, err
	}
	return l.Token(), l.Release(ctx)
}

// raise claims the next token. An advisory lock cannot be taken from a session that lives, so the lock stays where it
// is.
func (e *Env) raise(ctx context.Context, resource string) (fencepost.Token, error) {
	conn, err := e.aside.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	c := fencepost.Claim{Resource: e.Namespace + ":" + resource, Nonce: token.NewNonce()}
	const next = `SELECT coalesce(max(token), 0) + 1 FROM fencepost.fences WHERE resource = $1`
	if err := conn.QueryRow(ctx, next, c.Resource).Scan(&c.Token); err != nil {
		return 0, err
	}
	return c.Token, fence.Raise(ctx, conn.Conn(), c, &fence.RaiseOptions{Label: "another worker"})
}

// Lose takes a lease away and returns once its holder knows: l.Done is closed, and l.Err is ErrLost. In Redis only this
// lease is lost. Without Redis the store's session in PostgreSQL is ended, and with it all leases of the store.
func (e *Env) Lose(l *fencepost.Lease) {
	e.tb.Helper()
	ctx, cancel := context.WithTimeout(e.tb.Context(), patience)
	defer cancel()
	if err := e.lose(ctx, l); err != nil {
		e.tb.Fatalf("lose %q: %v", l.Resource(), err)
	}
}

func (e *Env) lose(ctx context.Context, l *fencepost.Lease) error {
	if e.other == nil {
		const end = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
		if _, err := e.aside.Exec(ctx, end); err != nil {
			return err
		}
	} else {
		if err := e.redisAside.Del(ctx, lease.Key(e.prefix(), l.Resource())).Err(); err != nil {
			return err
		}
		if err := l.Renew(ctx, lease.MaxTTL); !errors.Is(err, fencepost.ErrLost) {
			return errors.Join(errors.New("it is still held"), err)
		}
	}
	select {
	case <-l.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RedisForgets deletes everything that Redis knows of the store, leases and counters, as a server that restarted
// without its data. The next holder's token is lifted above the fence; a holder learns of the loss with its next
// renewal. It is for stores with Redis.
func (e *Env) RedisForgets() {
	e.tb.Helper()
	e.needRedis("RedisForgets")
	if err := e.forget(e.tb.Context()); err != nil {
		e.tb.Fatalf("make Redis forget: %v", err)
	}
}

func (e *Env) needRedis(what string) {
	e.tb.Helper()
	if e.other == nil {
		e.tb.Fatalf("%s is for a store with Redis", what)
	}
}
