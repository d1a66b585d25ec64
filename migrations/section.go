package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pressly/goose/v3"
)

// Each section of a migration, up or down, begins with these statements; the SQL files spell them
// out. The first frees it from the session's default: what another migrator did while this one
// waited for the lock is visible under READ COMMITTED alone. The second takes the lock.
const (
	setIsolation   = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`
	beginMigration = `SELECT fencepost.begin_migration(%d, %t)`
)

// forceSetting, when 'on' in a transaction, lets the Down of a TokenColumn migration drop tokens.
const forceSetting = "fencepost.force_down"

// inSections returns a copy of the caller's migration whose sections begin like those of the
// library's own, so that each runs once whatever it does.
func inSections(m *goose.Migration, force bool) *goose.Migration {
	section := func(up bool, fn goose.GoMigrationContext) *goose.GoFunc {
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			begin := []string{setIsolation, fmt.Sprintf(beginMigration, m.Version, up)}
			if force {
				begin = append(begin, `SELECT pg_catalog.set_config('`+forceSetting+`', 'on', true)`)
			}
			if err := execAll(ctx, tx, begin...); err != nil {
				return fmt.Errorf("begin section: %w", err)
			}
			if fn == nil {
				return nil
			}
			return fn(ctx, tx)
		}}
	}
	wrapped := goose.NewGoMigration(m.Version, section(true, m.UpFnContext), section(false, m.DownFnContext))
	wrapped.Source = m.Source
	return wrapped
}

// lockMigrations takes the migration lock to the end of the transaction, as begin_migration does,
// for a transaction that is no section of a migration in our version table. Taking it twice is
// harmless.
func lockMigrations(ctx context.Context, tx *sql.Tx) error {
	err := execAll(ctx, tx,
		`SELECT pg_catalog.set_config('lock_timeout', '0', true)`,
		`SELECT pg_catalog.pg_advisory_xact_lock(1179534157, 0)`,
		`SELECT pg_catalog.set_config('lock_timeout', '3s', true)`)
	if err != nil {
		return fmt.Errorf("take the migration lock: %w", err)
	}
	return nil
}

// execAll runs statements without parameters one by one: several in one string need the simple
// protocol.
func execAll(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// underLock runs fn in a READ COMMITTED transaction under the migration lock, again where a table lock was not
// granted in time.
func underLock(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := execAll(ctx, tx, setIsolation); err != nil {
		return fmt.Errorf("set isolation: %w", err)
	}
	if err := lockMigrations(ctx, tx); err != nil {
		return err
	}
	return retryLocked(ctx, slog.New(slog.DiscardHandler), func() error {
		return inSavepoint(ctx, tx, fn)
	})
}

// inSavepoint runs fn so that the transaction can go on after a lock timeout.
func inSavepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := execAll(ctx, tx, `SAVEPOINT fencepost_attempt`); err != nil {
		return err
	}
	err := fn()
	if lockTimedOut(err) {
		// This also gives back the table's place in the queue.
		if rollbackErr := execAll(ctx, tx, `ROLLBACK TO SAVEPOINT fencepost_attempt`); rollbackErr != nil {
			return errors.Join(rollbackErr, err)
		}
		return err
	}
	if err != nil {
		return err
	}
	return execAll(ctx, tx, `RELEASE SAVEPOINT fencepost_attempt`)
}
