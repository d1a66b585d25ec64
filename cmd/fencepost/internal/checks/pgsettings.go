package checks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func (p *postgres) fsync(ctx context.Context) ([]finding, error) {
	value, err := p.setting(ctx, "fsync")
	switch {
	case err != nil:
		return nil, err
	case value != "on":
		return fault("ALTER SYSTEM SET fsync = on, and reload",
			"fsync is %s: a crash of the host loses fences that were committed", value)
	}
	return fine("fsync is on")
}

func (p *postgres) fullPageWrites(ctx context.Context) ([]finding, error) {
	value, err := p.setting(ctx, "full_page_writes")
	switch {
	case err != nil:
		return nil, err
	case value != "on":
		return fault("ALTER SYSTEM SET full_page_writes = on, and reload (unless the file system never tears a page, as ZFS)",
			"full_page_writes is %s: a crash of the host can tear pages, those of the fences among them", value)
	}
	return fine("full_page_writes is on")
}

// synchronousCommit looks at what the work is committed with. A claim sees to itself.
func (p *postgres) synchronousCommit(ctx context.Context) ([]finding, error) {
	value, err := p.setting(ctx, "synchronous_commit")
	if err != nil {
		return nil, err
	}
	names, err := p.setting(ctx, "synchronous_standby_names")
	if err != nil {
		return nil, err
	}
	const do = "set synchronous_commit = on for the role, the database or the server"
	switch {
	case value == "off":
		return warning(do, "synchronous_commit is off: claims wait for the disk all the same, but a crash loses work "+
			"that was reported done")
	case names != "" && (value == "local" || value == "remote_write"):
		return warning(do, "synchronous_commit is %s: claims wait for the synchronous standby's disk, and the work does "+
			"not", value)
	}
	return fine("synchronous_commit is %s", value)
}

// standbysSQL counts the standbys: all of them, and those that are synchronous. NULL if this role may not know.
const standbysSQL = `SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
       coalesce(bool_or(sync_state IS NULL), false)
  FROM pg_catalog.pg_stat_replication`

// standbys looks at what a failover would lose.
func (p *postgres) standbys(ctx context.Context) ([]finding, error) {
	names, err := p.setting(ctx, "synchronous_standby_names")
	if err != nil {
		return nil, err
	}
	var all, synchronous int
	var hidden bool
	if err := p.pool.QueryRow(ctx, standbysSQL).Scan(&all, &synchronous, &hidden); err != nil {
		return nil, err
	}
	switch {
	case hidden:
		return skipped("GRANT pg_monitor to this role", "%d standbys are connected, and this role may not know which "+
			"are synchronous", all)
	case names != "" && synchronous == 0:
		return fault("bring a standby of synchronous_standby_names back, or empty that setting",
			"no synchronous standby is connected: every claim waits for one, and then its outcome is unknown")
	case names != "":
		return fine("%d of %d standbys are synchronous", synchronous, all)
	case all > 0:
		return warning("name standbys in synchronous_standby_names, or stop the workers and raise the fences after each "+
			"failover",
			"%d standbys are connected and none is synchronous: a failover loses the last commits, claims among them", all)
	}
	return fine("no standby is connected")
}

// isolation looks at the default isolation level. The library names the level of its own transactions.
func (p *postgres) isolation(ctx context.Context) ([]finding, error) {
	value, err := p.setting(ctx, "default_transaction_isolation")
	switch {
	case err != nil:
		return nil, err
	case value != "read committed":
		return warning("set default_transaction_isolation = 'read committed' for the role or the database",
			"the default isolation level is %s: each claim and each single write takes another round trip, and other "+
				"statements may fail with 40001",
			value)
	}
	return fine("the default isolation level is read committed")
}

// limit is a time limit of the session.
type limit struct {
	Name, Source string
	MS           int64
}

// timeLimits looks for limits that end waits which the library bounds by itself.
func (p *postgres) timeLimits(ctx context.Context) ([]finding, error) {
	rows, err := p.pool.Query(ctx, `SELECT name, source, setting::bigint FROM pg_catalog.pg_settings
		WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
		  AND setting::bigint > 0 ORDER BY name`)
	if err != nil {
		return nil, err
	}
	limits, err := pgx.CollectRows(rows, pgx.RowToStructByPos[limit])
	if err != nil {
		return nil, err
	}
	var low, all []string
	for _, l := range limits {
		d := time.Duration(l.MS) * time.Millisecond
		text := fmt.Sprintf("%s is %v (by %s)", l.Name, d, l.Source)
		all = append(all, text)
		if d < p.opts.TTL {
			low = append(low, text)
		}
	}
	switch {
	case len(low) > 0:
		return warning("raise it for the role or the database (ALTER ROLE … SET, ALTER DATABASE … SET), or let the "+
			"library bound its own waits: 0",
			"%s: shorter than the TTL of %v, so work or claims that wait are ended early", strings.Join(low, ", "), p.opts.TTL)
	case len(all) > 0:
		return fine("%s: not below the TTL of %v", strings.Join(all, ", "), p.opts.TTL)
	}
	return fine("none is set for this role and database")
}

// lockTable looks at the space for advisory locks of sessions, a quarter of which a store may use.
func (p *postgres) lockTable(ctx context.Context) ([]finding, error) {
	size := 1
	var factor, added int
	for name, to := range map[string]*int{
		"max_locks_per_transaction": &factor, "max_connections": &size,
		"max_prepared_transactions": &added,
	} {
		text, err := p.setting(ctx, name)
		if err != nil {
			return nil, err
		}
		if *to, err = strconv.Atoi(text); err != nil {
			return nil, err
		}
	}
	size = factor * (size + added)
	var used int
	if err := p.pool.QueryRow(ctx, `SELECT count(*) FROM pg_catalog.pg_locks WHERE NOT fastpath`).Scan(&used); err != nil {
		return nil, err
	}
	const fewest = 64 // PostgreSQL's default
	const do = "raise max_locks_per_transaction, and restart"
	switch {
	case used > size/2:
		return fault(do, "%d of about %d locks are in use: once the table is full, any session's statement may fail", used,
			size)
	case factor < fewest:
		return warning(do, "max_locks_per_transaction is %d, below the default: a store holds at most %d leases", factor,
			size/4)
	}
	return fine("there is space for about %d locks: a store holds at most %d leases", size, size/4)
}
