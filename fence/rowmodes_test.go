package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// C28: every claimed write, with tokens at the edges, through every way pgx has of sending them.
func TestCase28_ClaimedWritesInEveryExecMode(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config := pool.Config()
		config.ConnConfig.DefaultQueryExecMode = mode
		modal, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		resource := "mode " + mode.String()
		// The highest token is no step from 0: the fence goes there as an old one would have.
		exec(t, pool, `INSERT INTO fencepost.fence VALUES ($1, 9223372036854775806, gen_random_uuid(), '', now())`, resource)
		for _, c := range []fence.Claim{mustRaise(t, modal, claimOf(resource+" young", 1<<31)), mustRaise(t, modal, claimOf(resource, token.Max))} {
			ctx := t.Context()
			err := errors.Join(insertClaimed(ctx, modal, c, 10, "new"), upsertClaimed(ctx, modal, c, 10, "put"),
				updateClaimed(ctx, modal, c, 10, "set"), modifyClaimed(ctx, modal, c, 10, "!"))
			if r := read(t, pool, 10); err != nil || r.Value != "set!" || r.Token != c.Token {
				t.Errorf("%v, token %d: the row is %+v, %v", mode, c.Token, r, err)
			}
			wantErr(t, insertClaimed(ctx, modal, c, 10, "x"), fence.ErrExists)
			if err := deleteClaimed(ctx, modal, c, 10); err != nil {
				t.Errorf("%v, token %d: %v", mode, c.Token, err)
			}
		}
		modal.Close()
	}
}
