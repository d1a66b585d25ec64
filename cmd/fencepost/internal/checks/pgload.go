package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// gateClass is the class of the advisory locks that are the gates of the resources.
const gateClass = 1179534160

// openSQL finds the oldest transaction that has passed a gate, how many wait at one, and whether this role may not know
// the age of some.
const openSQL = `
SELECT a.pid, coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, coalesce(a.state, ''),
       (a.xact_start IS NULL)
  FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.classid = $1 AND l.objsubid = 2 AND l.granted
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
 ORDER BY a.xact_start NULLS FIRST LIMIT 1`

// transactions looks for open transactions that hold up claims. Whoever has the gate, until it ends, is waited for.
func (p *postgres) transactions(ctx context.Context) ([]finding, error) {
	var pid int
	var seconds float64
	var state string
	var hidden bool
	err := p.pool.QueryRow(ctx, openSQL, gateClass).Scan(&pid, &seconds, &state, &hidden)
	age := time.Duration(seconds * float64(time.Second))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fine("no transaction is open under a lease")
	case err != nil:
		return nil, err
	case hidden:
		return skipped("GRANT pg_monitor to this role", "transactions are open under leases, and this role may not know "+
			"since when")
	case age >= p.limits.old:
		return warning(fmt.Sprintf(`look at it with "fencepost lease ls", and end it: SELECT pg_terminate_backend(%d)`, pid),
			"the transaction of pid %d has been open for %v (%s), and holds up the next claim of its resource", pid,
			age.Round(time.Second), state)
	}
	return fine("the oldest transaction under a lease is %v old", age.Round(time.Second))
}

// prepared looks for prepared transactions, which keep their locks until somebody ends them.
func (p *postgres) prepared(ctx context.Context) ([]finding, error) {
	rows, err := p.pool.Query(ctx, `SELECT gid FROM pg_catalog.pg_prepared_xacts
		WHERE database = current_database() 
		  AND clock_timestamp() - prepared >= make_interval(secs => $1::float8) ORDER BY prepared`,
		p.limits.old.Seconds())
	if err != nil {
		return nil, err
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return nil, err
	case len(gids) > 0:
		return warning("COMMIT PREPARED or ROLLBACK PREPARED, with the name that pg_prepared_xacts has",
			"%d prepared transactions are older than %v: they keep their locks, over restarts too", len(gids), p.limits.old)
	}
	return fine("no old prepared transaction")
}

// deadSQL finds tables of fencepost's, and tables with tokens, by their dead tuples.
const deadSQL = `
SELECT format('%I.%I', s.schemaname, s.relname), s.n_dead_tup, s.n_live_tup
  FROM pg_catalog.pg_stat_all_tables AS s
 WHERE (s.schemaname = 'fencepost' OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
           WHERE a.attrelid = s.relid AND a.attname = 'last_fencing_token' AND NOT a.attisdropped))
   AND s.n_dead_tup >= $1 AND s.n_dead_tup * 2 > s.n_live_tup
 ORDER BY s.n_dead_tup DESC`

// deadTuples looks for tables that autovacuum does not keep up with.
func (p *postgres) deadTuples(ctx context.Context) ([]finding, error) {
	rows, err := p.pool.Query(ctx, deadSQL, p.limits.dead)
	if err != nil {
		return nil, err
	}
	var names []string
	var name string
	var dead, live int64
	_, err = pgx.ForEachRow(rows, []any{&name, &dead, &live}, func() error {
		names = append(names, fmt.Sprintf("%s has %d dead tuples beside %d live ones", name, dead, live))
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(names) > 0:
		return warning("VACUUM (ANALYZE) them; then see whether autovacuum is on, and which transaction is old "+
			"(pg_stat_activity)",
			"%s", strings.Join(names, "; "))
	}
	return fine("autovacuum keeps up with the tables that carry tokens")
}

// ids looks at how many transaction ids and multixact ids are in use. Many writers under one lease use up the latter.
func (p *postgres) ids(ctx context.Context) ([]finding, error) {
	var xids, multixacts int64
	err := p.pool.QueryRow(ctx, `SELECT age(datfrozenxid), mxid_age(datminmxid) FROM pg_catalog.pg_database
		WHERE datname = current_database()`).Scan(&xids, &multixacts)
	if err != nil {
		return nil, err
	}
	for what, n := range map[string]int64{"transaction ids": xids, "multixact ids": multixacts} {
		if n >= p.limits.ids {
			return fault("VACUUM (FREEZE) the oldest tables of the database, and end what holds autovacuum back",
				"%d %s are in use, of two thousand million: PostgreSQL will stop to write", n, what)
		}
	}
	return fine("%d transaction ids and %d multixact ids are in use", xids, multixacts)
}
