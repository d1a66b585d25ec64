package testenv

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// askEvery is the pause between two questions of Until. Without one, the questions take the processors from what they
// wait for.
const askEvery = 2 * time.Millisecond

// Until asks until the answer is true, for as long as ctx lasts.
func Until(ctx context.Context, ask func(context.Context) (bool, error)) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		if yes, err := ask(ctx); err != nil || yes {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the answer stayed no: %w", context.Cause(ctx))
		}
	}
}

// UntilQuery is Until for a query that yields true.
func UntilQuery(ctx context.Context, db Querier, query string, args ...any) error {
	return Until(ctx, func(ctx context.Context) (yes bool, err error) {
		err = db.QueryRow(ctx, query, args...).Scan(&yes)
		return yes, err
	})
}
