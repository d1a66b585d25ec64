package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
)

func redisClient(urls []string) (*redis.Client, error) {
	if len(urls) == 0 {
		return nil, errors.New("there is no Redis")
	}
	o, err := redis.ParseURL(urls[0])
	if err != nil {
		return nil, errors.New("the Redis address is not valid") // the cause quotes it
	}
	return redis.NewClient(o), nil
}

// writer is one worker of a comparison. It writes one column of rows of its own, by their primary key.
type writer struct {
	*access
	mode   string
	worker int64
	writes int
	pass   int64 // what it writes, so that every write changes something
}

func (w *writer) resource() string { return fmt.Sprintf("written:%d", w.worker) }

func (w *writer) update() string {
	return `UPDATE ` + w.table + ` SET value = $1 WHERE worker = $2 AND id = $3`
}

// ids calls write for each row of a turn.
func (w *writer) ids(first int64, write func(id int64) error) error {
	for i := range int64(w.writes) {
		if err := write((first + i) % rowsWritten); err != nil {
			return err
		}
	}
	return nil
}

// executor is a pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// plain writes the rows of a turn with plain statements.
func (w *writer) plain(ctx context.Context, db executor, first int64) error {
	sql := w.update()
	return w.ids(first, func(id int64) error {
		tag, err := db.Exec(ctx, sql, w.pass, w.worker, id)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%d rows were written", tag.RowsAffected())
		}
		return err
	})
}

// underLease takes a lease, works, and gives it back.
func (w *writer) underLease(ctx context.Context, work func(*fencepost.Lease) error) error {
	lease, err := w.store.Acquire(ctx, w.resource(), nil)
	if err != nil {
		return err
	}
	return errors.Join(work(lease), lease.Release(ctx))
}

// throughTable writes the rows of a turn with a guarded call each, which commits by itself.
func (w *writer) throughTable(ctx context.Context, first int64) error {
	return w.underLease(ctx, func(lease *fencepost.Lease) error {
		return w.ids(first, func(id int64) error {
			return w.fenced.Update(ctx, lease, fencepost.Key{w.worker, id}, fencepost.Set{"value": w.pass})
		})
	})
}

// locked writes the rows of a turn in a transaction that locks them first.
func (w *writer) locked(ctx context.Context, first int64) error {
	sql := `SELECT value FROM ` + w.table + ` WHERE worker = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`
	var ids []int64
	_ = w.ids(first, func(id int64) error { ids = append(ids, id); return nil }) // it returns what that does
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql, w.worker, ids); err != nil {
			return err
		}
		return w.plain(ctx, tx, first)
	})
}

// done writes the rows of a turn in Store.Do.
func (w *writer) done(ctx context.Context, first int64) error {
	return w.locks.Do(ctx, w.resource(), func(ctx context.Context, tx pgx.Tx) error { return w.plain(ctx, tx, first) })
}
