package fence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainWithExamples(m, 3) }

// guarded writes a value in a transaction under a claim.
func guarded(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int, value string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fence.Enter(ctx, tx, c); err != nil {
			return err
		}
		_, err := tx.Exec(
			ctx,
			`UPDATE app.item SET value = $2, last_fencing_token = $3 WHERE id = $1`,
			id,
			value,
			int64(c.Token),
		)
		return err
	})
}

// rows is the table that the tests write to.
var rows = fence.Table(fencetest.Rows)
