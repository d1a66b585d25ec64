package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
)

// CollectOptions are the settings of Collect.
type CollectOptions struct {
	OlderThan time.Duration
	Limit     int
	DryRun    bool
	Each      func(fence.Collected) // nil: none
}

// Collect deletes the namespace's fences that are old, and that nobody holds.
func (s *Site) Collect(ctx context.Context, o CollectOptions) (fence.Collected, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fence.Collected{}, dbError(ctx, "collect fences", err)
	}
	defer conn.Release()
	return fence.Collect(ctx, conn.Conn(), &fence.CollectOptions{
		OlderThan: o.OlderThan, Namespace: s.namespace, Limit: o.Limit, DryRun: o.DryRun, Held: s.held, Progress: o.Each,
	})
}

// held reports which of these resources are held, by their full names. What Redis cannot have a lease of is not.
func (s *Site) held(ctx context.Context, resources []string) ([]bool, error) {
	held := make([]bool, len(resources))
	if s.redis == nil {
		locks, err := s.locks(ctx)
		for i, r := range resources {
			_, held[i] = locks[advisory.Key(s.namespace, s.bare(r))]
		}
		return held, err
	}
	var names []string
	var places []int
	for i, r := range resources {
		if name := s.bare(r); name != "" && len(name) <= lease.MaxResourceBytes {
			names, places = append(names, name), append(places, i)
		}
	}
	if len(names) == 0 {
		return held, nil
	}
	seen, err := s.redis.Look(ctx, names...)
	for i, v := range seen {
		held[places[i]] = v.Standing != lease.Free // also what is not understood
	}
	return held, err
}

// bare is a full name without the namespace.
func (s *Site) bare(full string) string { return strings.TrimPrefix(full, s.namespace+":") }

// Size is what one of fencepost's tables takes.
type Size struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`  // as PostgreSQL's statistics have them; -1 if it has none yet
	Bytes int64  `json:"bytes"` // with indexes
}

// Sizes returns what grows with use: the tables of fences, floors, keys and protections, the largest first.
func (s *Site) Sizes(ctx context.Context) ([]Size, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT c.oid::regclass::text, CASE WHEN t.n_live_tup = 0 AND c.reltuples < 0 THEN -1 ELSE t.n_live_tup END,
		       pg_catalog.pg_total_relation_size(c.oid)
		  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_stat_all_tables AS t ON t.relid = c.oid
		 WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'fencepost')
		   AND c.relname IN ('fence', 'floor', 'ledger', 'protected')
		 ORDER BY 3 DESC, 1`)
	if err != nil {
		return nil, dbError(ctx, "look at table sizes", err)
	}
	sizes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Size])
	if err == nil && len(sizes) == 0 {
		return nil, fmt.Errorf("%w: fencepost's migrations have not been applied to this database: run fencepost migrate up",
			pgerr.ErrUnavailable)
	}
	return sizes, dbError(ctx, "look at table sizes", err)
}

// CheckAge refuses an age that is too low.
func CheckAge(age time.Duration) error {
	if age < fence.MinCollectAge {
		return errors.New("--older-than is 1h or more")
	}
	return nil
}
