package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// lockTimeout is how long one attempt waits for a table lock. begin_migration and lockMigrations set it.
const lockTimeout = 3 * time.Second

// waitsForWork marks the statements of migrators that wait for such work, as waits does for the migration lock.
const waitsForWork = `/* waits for work on a table */ `

// besideSQL reports whether some session does maintenance on a table, or on a partition of it, beside the table's
// users: CREATE INDEX or REINDEX CONCURRENTLY, or a manual VACUUM. A session that queues for the lock of such a table
// holds a snapshot meanwhile; the one by which the server looks up the table's name is enough. So it waits for work
// that waits for its snapshot. Autovacuum does not count: it yields to sessions that queue, and belongs to no user. An
// empty name means the schema fencepost.
const besideSQL = waitsForWork + `WITH RECURSIVE tree (oid) AS (
		SELECT c.oid FROM pg_catalog.pg_class AS c
		 WHERE CASE $1::pg_catalog.text WHEN '' THEN
			c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('fencepost')::pg_catalog.oid ELSE
			c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid END
		 UNION
		SELECT i.inhrelid FROM tree AS t JOIN pg_catalog.pg_inherits AS i ON i.inhparent OPERATOR(pg_catalog.=) t.oid)
	SELECT EXISTS (SELECT FROM tree AS t JOIN pg_catalog.pg_locks AS l ON l.relation OPERATOR(pg_catalog.=) t.oid
		JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
		WHERE l.granted AND l.mode OPERATOR(pg_catalog.=) 'ShareUpdateExclusiveLock' AND a.usesysid IS NOT NULL
		  AND l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
		  AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
			WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))`

// besideError says that a table lock was not requested, because of such work. It carries the server's SQLSTATE 55P03.
type besideError struct {
	table string
	err   error
}

func (e *besideError) Error() string {
	return "somebody works on the table beside its users: " + e.err.Error()
}

func (e *besideError) Unwrap() error { return e.err }

// refuseLock fails as LOCK TABLE … NOWAIT would. A request for a strong lock gives the transaction an id, even if the
// request is refused. With an id the transaction would keep VACUUM from removing rows for as long as it then waits.
const refuseLock = `DO $body$ BEGIN
	RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = 'an index is built CONCURRENTLY, or VACUUM is at work';
END $body$`

// lockTable takes a table lock until the end of the transaction, or fails with SQLSTATE 55P03. It requests the lock
// only if no session works beside the table's users. Otherwise it fails at once with a besideError.
func lockTable(ctx context.Context, tx *sql.Tx, table, mode string) error {
	beside, err := worksBeside(ctx, tx, table)
	if err != nil {
		return err
	}
	if beside {
		return &besideError{table: table, err: execAll(ctx, tx, refuseLock)}
	}
	return execAll(ctx, tx, `LOCK TABLE `+table+` IN `+mode+` MODE`)
}

func worksBeside(ctx context.Context, db querier, table string) (beside bool, err error) {
	if err := db.QueryRowContext(ctx, besideSQL, table).Scan(&beside); err != nil {
		return false, fmt.Errorf("look who works on the table: %w", err)
	}
	return beside, nil
}

// awaitBeside waits until no session works beside a table's users, for at most lockTimeout. It does so outside of any
// transaction: once such work has met a snapshot of a transaction, however short-lived, it waits for the end of that
// transaction.
func awaitBeside(ctx context.Context, db *sql.DB, table string) error {
	for end := time.Now().Add(lockTimeout); ; {
		beside, err := worksBeside(ctx, db, table)
		if err != nil || !beside || time.Now().After(end) {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// dropSnapshot ends what the last query has left open: the server keeps its portal, and with that its snapshot, until
// the next statement of the transaction. The statement of dropSnapshot needs no snapshot.
func dropSnapshot(ctx context.Context, tx *sql.Tx, mark string) error {
	return execAll(ctx, tx, mark+`SET LOCAL lock_timeout = '3s'`)
}

const accessExclusive = "ACCESS EXCLUSIVE"

// protectionModeSQL returns the mode in which protect and unprotect lock a table. If there are triggers to drop, the
// mode must also keep readers out. The query looks at the table's partitions too, and takes no lock. If it returns no
// row, the table does not exist.
const protectionModeSQL = `WITH RECURSIVE tree (oid) AS (
		SELECT c.oid FROM pg_catalog.pg_class AS c
		 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid
		   AND c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) ANY ('{r,p}'::pg_catalog.text[])
		 UNION
		SELECT i.inhrelid FROM tree AS t JOIN pg_catalog.pg_inherits AS i ON i.inhparent OPERATOR(pg_catalog.=) t.oid)
	SELECT CASE WHEN EXISTS (
		SELECT FROM tree AS t JOIN pg_catalog.pg_trigger AS g ON g.tgrelid OPERATOR(pg_catalog.=) t.oid
		 WHERE g.tgname::pg_catalog.text OPERATOR(pg_catalog.=)
			ANY ('{~fencepost,~fencepost_truncate}'::pg_catalog.text[]))
		THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END
	  FROM tree LIMIT 1`

// lockProtection takes the lock that protect or unprotect is about to request. A function that waited would hold a
// snapshot.
func lockProtection(ctx context.Context, tx *sql.Tx, table string) error {
	var mode string
	err := tx.QueryRowContext(ctx, protectionModeSQL, table).Scan(&mode)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // what follows says so, or has nothing to do
	}
	if err != nil {
		return fmt.Errorf("look for protections: %w", err)
	}
	return lockTable(ctx, tx, table, mode)
}
