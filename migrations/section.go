package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pressly/goose/v3"
)

// Each section of a migration, up or down, begins with these statements. The SQL files contain them as text. The first
// one overrides the session's default isolation level: only READ COMMITTED shows what another migrator did while this
// one waited for the lock. The second one takes the lock, or fails.
const (
	setIsolation   = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`
	beginMigration = `SELECT fencepost.begin_migration(%d, %t)`
)

// forceSetting, if it is 'on' in a transaction, lets the Down of a TokenColumn migration drop tokens.
const forceSetting = "fencepost.force_down"

// inSections returns a copy of the caller's migration whose sections begin like those of the library's own migrations.
// So each section runs once, whatever it does.
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
			return fn(context.WithValue(ctx, inSection{}, true), tx)
		}}
	}
	wrapped := goose.NewGoMigration(m.Version, section(true, m.UpFnContext), section(false, m.DownFnContext))
	wrapped.Source = m.Source
	return wrapped
}

// execAll runs statements without parameters one by one, because several statements in one string need the simple
// protocol.
func execAll(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// inSection marks the context of a section that our runner runs. The runner runs it again if a lock was refused.
type inSection struct{}

// underLock runs fn in a READ COMMITTED transaction under the migration lock. In a goose provider of the caller's there
// is no runner of ours, so underLock itself runs fn again, in the same transaction, if a table lock was not granted. fn
// waits for a table by calling lockTable.
func underLock(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if ctx.Value(inSection{}) != nil {
		if err := refuseEncoding(ctx, tx); err != nil {
			return err
		}
		return fn()
	}
	if err := execAll(ctx, tx, setIsolation); err != nil {
		return fmt.Errorf("set isolation: %w", err)
	}
	if err := refuseEncoding(ctx, tx); err != nil {
		return err
	}
	if err := lockMigrations(ctx, tx); err != nil {
		return err
	}
	return retryLocked(ctx, slog.New(slog.DiscardHandler), func() error {
		err := inSavepoint(ctx, tx, fn)
		var met *besideError
		if errors.As(err, &met) {
			// The next attempt follows without a look in between, because such work may meet each look.
			if waitErr := errors.Join(dropSnapshot(ctx, tx, waitsForWork), sleep(ctx, lockTimeout)); waitErr != nil {
				return errors.Join(waitErr, err)
			}
		}
		return err
	})
}

// refuseEncoding refuses a session whose client encoding would change our names, which are UTF-8.
func refuseEncoding(ctx context.Context, tx *sql.Tx) error {
	var encoding string
	if err := tx.QueryRowContext(ctx, `SELECT pg_catalog.pg_client_encoding()`).Scan(&encoding); err != nil {
		return fmt.Errorf("ask for the client's encoding: %w", err)
	}
	if encoding != "UTF8" {
		return fmt.Errorf(
			"%w: the session's client_encoding is %s, and names are UTF-8: connect with client_encoding=UTF8",
			ErrInvalid,
			encoding,
		)
	}
	return nil
}

// inSavepoint runs fn so that the transaction can go on after a lock timeout or a deadlock.
func inSavepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := execAll(ctx, tx, `SAVEPOINT fencepost_attempt`); err != nil {
		return err
	}
	err := fn()
	if lockRefused(err) {
		// The rollback also gives up the session's place in the table's queue.
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
