package operate

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgledger"
)

// Key is an idempotency key whose work has been done.
type Key struct {
	Key      string    `json:"key"`
	Resource string    `json:"resource"` // without the namespace
	DoneAt   time.Time `json:"done_at"`
}

const keyColumns = `SELECT key, resource, done_at FROM fencepost.keys WHERE namespace COLLATE "C" = $1 `

// Keys returns up to limit keys of the namespace, the latest first, that were done before a time. more says that there
// are others. Keys that were done at one moment come in the order of their names, and may be split between two pages:
// with the last key of a page as after, the next one also has those of its moment that come after it.
func (s *Site) Keys(ctx context.Context, before time.Time, after string, limit int) (keys []Key, more bool, err error) {
	rows, err := s.pool.Query(ctx, keyColumns+`
		AND done_at <= $2 AND (done_at < $2 OR $3 <> '' AND key COLLATE "C" > $3)
		ORDER BY done_at DESC, key COLLATE "C" LIMIT $4`,
		s.namespace, before, after, limit+1)
	if keys, err = s.collectKeys(rows, err); err != nil {
		return nil, false, dbError(ctx, "list keys", err)
	}
	if len(keys) > limit {
		return keys[:limit], true, nil
	}
	return keys, false, nil
}

// Key returns a key of the namespace; nil if its work has not been recorded.
func (s *Site) Key(ctx context.Context, key string) (*Key, error) {
	rows, err := s.pool.Query(ctx, keyColumns+`AND key COLLATE "C" = $2`, s.namespace, key)
	keys, err := s.collectKeys(rows, err)
	if err != nil || len(keys) == 0 {
		return nil, dbError(ctx, "look for a key", err)
	}
	return &keys[0], nil
}

func (s *Site) collectKeys(rows pgx.Rows, err error) ([]Key, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k Key, err error) {
		err = row.Scan(&k.Key, &k.Resource, &k.DoneAt)
		k.Resource, k.DoneAt = strings.TrimPrefix(k.Resource, s.namespace+":"), k.DoneAt.UTC()
		return k, err
	})
}

// Purge deletes the keys of the namespace that are older than age, which is a day at least.
func (s *Site) Purge(ctx context.Context, age time.Duration) (int64, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, dbError(ctx, "purge", err)
	}
	defer conn.Release()
	return pgledger.Purge(ctx, conn.Conn(), s.namespace, age)
}
