package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// This package waits for the migration lock by polling. A wait in the server would hold a snapshot, and CREATE INDEX
// CONCURRENTLY waits for every snapshot older than its own. The two would wait for each other as soon as the migrator
// that has the lock wants the table whose index is being built.
const (
	// The pauses between two polls grow from the first to the last. A part of each pause is jitter.
	firstLook = 50 * time.Millisecond
	lastLook  = 800 * time.Millisecond
	// waits marks the statements of waiting migrators, so that pg_stat_activity shows them.
	waits = `/* waits for the migration lock */ `
)

// lockTakenSQL looks at the lock without taking it, so that waiting migrators do not block each other.
const lockTakenSQL = waits + `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l
	WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
	  AND l.classid OPERATOR(pg_catalog.=) 1179534157::pg_catalog.oid
	  AND l.objid OPERATOR(pg_catalog.=) 0::pg_catalog.oid
	  AND l.objsubid OPERATOR(pg_catalog.=) 2
	  AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
		WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))`

// tryLockSQL takes the lock until the end of the transaction, if no other session has it. Taking it twice is harmless.
const tryLockSQL = waits + `SELECT pg_catalog.pg_try_advisory_xact_lock(1179534157, 0)`

// whenFree waits until no other session has the migration lock, and then runs fn. The transaction of fn takes the lock
// or fails with stateLockTaken. If another migrator took the lock first, whenFree waits and runs fn again. While it
// waits it holds no transaction and no connection of db.
func whenFree(ctx context.Context, db *sql.DB, log *slog.Logger, fn func() error) error {
	w := wait{log: log}
	for {
		var taken bool
		if err := db.QueryRowContext(ctx, lockTakenSQL).Scan(&taken); err != nil {
			return fmt.Errorf("look for the migration lock: %w", err)
		}
		if !taken {
			if err := fn(); sqlState(err) != stateLockTaken {
				return err
			}
		}
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
}

// lockMigrations takes the migration lock until the end of the transaction, as begin_migration does. It is for a
// transaction that is not a section of a migration in our version table. It waits inside that transaction, because it
// must not end a transaction of the caller. The transaction is READ COMMITTED, so it has no snapshot between two polls.
func lockMigrations(ctx context.Context, tx *sql.Tx) error {
	w := wait{log: slog.New(slog.DiscardHandler)}
	for {
		var got bool
		if err := tx.QueryRowContext(ctx, tryLockSQL).Scan(&got); err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		// This also sets the limit for table locks.
		if err := dropSnapshot(ctx, tx, waits); err != nil || got {
			return err
		}
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
}

// wait is one wait for the migration lock.
type wait struct {
	log  *slog.Logger
	next time.Duration
}

func (w *wait) pause(ctx context.Context) error {
	if w.next == 0 {
		w.next = firstLook
		w.log.InfoContext(ctx, "migration waits for another migrator")
	}
	d := w.next/2 + rand.N(w.next/2)
	w.next = min(2*w.next, lastLook)
	if err := sleep(ctx, d); err != nil {
		return fmt.Errorf("wait for another migrator: %w", err)
	}
	return nil
}
