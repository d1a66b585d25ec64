package pgrow_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/token"
)

// C28: every claimed write, with tokens at the edges, through every way pgx has of sending them.
func TestCase28_ClaimedWritesInEveryExecMode(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
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
		// The highest token is not reachable from 0 in one step, so the fence is put there as an old one would be.
		fencetest.Exec(
			t,
			pool,
			`INSERT INTO fencepost.fence VALUES ($1, 9223372036854775806, gen_random_uuid(), '', now())`,
			resource,
		)
		for _, c := range []pgclaim.Claim{
			fencetest.MustRaise(t, modal, fencetest.ClaimOf(resource+" young", 1<<31)),
			fencetest.MustRaise(t, modal, fencetest.ClaimOf(resource, token.Max)),
		} {
			ctx := t.Context()
			err := errors.Join(
				fencetest.InsertClaimed(ctx, modal, c, 10, "new"),
				fencetest.UpsertClaimed(ctx, modal, c, 10, "put"),
				fencetest.UpdateClaimed(ctx, modal, c, 10, "set"),
				fencetest.ModifyClaimed(ctx, modal, c, 10, "!"),
			)
			if r := fencetest.Read(t, pool, 10); err != nil || r.Value != "set!" || r.Token != c.Token {
				t.Errorf("%v, token %d: the row is %+v, %v", mode, c.Token, r, err)
			}
			fencetest.WantErr(t, fencetest.InsertClaimed(ctx, modal, c, 10, "x"), pgerr.ErrExists)
			if err := fencetest.DeleteClaimed(ctx, modal, c, 10); err != nil {
				t.Errorf("%v, token %d: %v", mode, c.Token, err)
			}
		}
		modal.Close()
	}
}
