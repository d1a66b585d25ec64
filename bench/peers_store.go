package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/handoff"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

// measureStore measures the hand-off of a lease with its claim beside that of the lease alone.
func measureStore(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) ([]figure.Figure, error) {
	var series []handoff.Series
	err := withDatabase(ctx, s.PostgresURL, s.Prefix, func(pool *pgxpool.Pool) (err error) {
		s.PostgresURL, err = inDatabase(s.PostgresURL, pool.Config().ConnConfig.Database)
		if err != nil {
			return err
		}
		series, err = compareHandoff(ctx, o, peers.Stores(s))
		return err
	})
	if err != nil {
		return nil, err
	}
	lease, store := series[0], series[1]
	figures := []figure.Figure{
		compareHands(store, lease, "hand-off p50", "ms", median),
		compareHands(store, lease, "hand-off p90", "ms", slow),
		equalShares(store),
	}
	title := fmt.Sprintf("hand-off of a store's lease: as above, and the next one's claim has been committed; %d clients",
		clients)
	return figures, handoffTable(w, title, series)
}
