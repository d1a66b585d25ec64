package pgclaim

import (
	"context"
	"database/sql"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// EnterSQL is fence.EnterSQL.
func EnterSQL(ctx context.Context, tx pgsession.SQLTx, c Claim) error {
	if err := c.Check(); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, EnterText, EnterArgs(c)...)
	return pgerr.InterpretOwn(ctx, "guard", err)
}

// RaiseSQL is fence.RaiseSQL.
func RaiseSQL(ctx context.Context, db pgsession.SQLBeginner, c Claim, opts *RaiseOptions) error {
	if err := c.Check(); err != nil {
		return err
	}
	label, p, err := opts.resolve()
	if err != nil {
		return err
	}
	err = untilAnswered(ctx, c, p, func() (answer, error) { return raiseSQL(ctx, db, c, label, p) })
	if pool, ok := db.(pgsession.SQLPool); ok {
		pgsession.LeaveStandby(pool, err)
	}
	return err
}

func raiseSQL(
	ctx context.Context, db pgsession.SQLBeginner, c Claim, label string, p patience,
) (a answer, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return answer{}, pgerr.Interpret(ctx, "claim", err, false)
	}
	defer func() { _ = tx.Rollback() }() // no effect once committed
	if _, err := tx.ExecContext(ctx, claimBoundsSQL, p.onServer(ctx)); err != nil {
		return answer{}, pgerr.Interpret(ctx, "claim", err, false)
	}
	err = a.scan(tx.QueryRowContext(ctx, claimSQL, c.Resource, int64(c.Token), c.Nonce.Hex(), label))
	if err != nil {
		return answer{}, pgerr.InterpretOwn(ctx, "claim", err)
	}
	return a, pgerr.CommitError(ctx, tx.Commit())
}
