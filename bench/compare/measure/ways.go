package measure

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
)

// autocommit is a turn whose writes commit one by one.
func (w *writer) autocommit() way {
	if w.mode == mode.RedisLease {
		return w.throughTable
	}
	return func(ctx context.Context, first int64) error { return w.plain(ctx, w.pool, first) }
}

// oneTransaction is a turn whose writes commit together.
func (w *writer) oneTransaction() way {
	switch w.mode {
	case mode.RedisLease:
		return func(ctx context.Context, first int64) error {
			return w.underLease(ctx, func(lease *fencepost.Lease) error {
				return w.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return w.plain(ctx, tx, first) }, lease)
			})
		}
	case mode.AdvisoryXact:
		return w.done
	case mode.ForUpdate:
		return w.locked
	}
	return func(ctx context.Context, first int64) error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return w.plain(ctx, tx, first) })
	}
}

// single is a turn of one write.
func (w *writer) single() way {
	switch w.mode {
	case mode.AdvisoryXact:
		return w.done
	case mode.ForUpdate:
		return w.locked
	}
	return w.autocommit()
}
