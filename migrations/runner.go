package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/pressly/goose/v3"
)

// runner carries one call of Up, Down or Status.
type runner struct {
	db       *sql.DB
	opts     Options
	provider *goose.Provider
	// known are the migrations that the provider has, in the order of versions.
	known []Migration
}

func newRunner(db *sql.DB, opts *Options) (*runner, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: database is nil", ErrInvalid)
	}
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	provider, err := newProvider(db, &o)
	if err != nil {
		return nil, fmt.Errorf("collect migrations: %w", err)
	}
	r := &runner{db: db, opts: o, provider: provider}
	for _, s := range provider.ListSources() {
		r.known = append(r.known, Migration{Version: s.Version, Name: nameOf(s.Version, s.Path), State: Pending})
	}
	return r, nil
}

func newProvider(db *sql.DB, opts *Options) (*goose.Provider, error) {
	fsys, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, err
	}
	store, err := newVersionStore()
	if err != nil {
		return nil, err
	}
	also := make([]*goose.Migration, 0, len(opts.Also))
	for _, m := range opts.Also {
		also = append(also, inSections(m, opts.Force))
	}
	return goose.NewProvider(goose.DialectCustom, db, fsys,
		goose.WithStore(store),
		goose.WithGoMigrations(also...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(opts.Logger),
	)
}

// up applies pending migrations. Together with an error, the times of what it applied may be missing, because only the
// first error is returned.
func (r *runner) up(ctx context.Context) ([]Migration, error) {
	applied, err := r.apply(ctx)
	if timeErr := r.setTimes(ctx, applied); err == nil {
		err = timeErr
	}
	return applied, err
}

func (r *runner) apply(ctx context.Context) ([]Migration, error) {
	h, err := readHistory(ctx, r.db)
	if err != nil {
		return nil, err
	}
	pending := r.pending(h)
	var applied []Migration
	if !h.exists || len(pending) > 0 && pending[0].Version < FirstAlso {
		if h, applied, err = r.prepare(ctx); err != nil {
			return nil, fmt.Errorf("create schema and version table: %w", err)
		}
		pending = r.pending(h)
	}
	for _, m := range pending {
		done, err := r.run(ctx, m, true)
		if err != nil {
			return applied, err
		}
		if done {
			m.State = Applied
			applied = append(applied, m)
		}
	}
	return applied, r.repair(ctx)
}

// setTimes gives each migration of the list its time in the version table.
func (r *runner) setTimes(ctx context.Context, list []Migration) error {
	if len(list) == 0 {
		return nil
	}
	h, err := readHistory(ctx, r.db)
	for i := range list {
		list[i].AppliedAt = h.at(list[i].Version)
	}
	return err
}

// pending returns the known migrations that have no record.
func (r *runner) pending(h history) []Migration {
	return slices.DeleteFunc(slices.Clone(r.known), func(m Migration) bool { return h.has(m.Version) })
}

func (r *runner) down(ctx context.Context) ([]Migration, error) {
	h, err := readHistory(ctx, r.db)
	if err != nil {
		return nil, err
	}
	// This looks up all of them before the first is taken down.
	var todo []Migration
	for _, rec := range h.records {
		if rec.version <= r.opts.To {
			continue
		}
		m, ok := r.find(rec.version)
		if !ok {
			return nil, fmt.Errorf("version %d: %w", rec.version, ErrUnknownVersion)
		}
		todo = append(todo, m)
	}
	var reverted []Migration
	for _, m := range todo {
		if r.opts.Force {
			if err := r.forget(ctx, m.Version); err != nil {
				return reverted, fmt.Errorf("forget before migration %d goes down: %w", m.Version, err)
			}
		}
		done, err := r.run(ctx, m, false)
		if err != nil {
			return reverted, err
		}
		if done {
			reverted = append(reverted, m)
		}
	}
	return reverted, nil
}

func (r *runner) status(ctx context.Context) ([]Migration, error) {
	h, err := readHistory(ctx, r.db)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(r.known)
	if _, err := findUnrecorded(ctx, r.db, h, all); err != nil {
		return nil, err
	}
	for _, rec := range h.records {
		i := slices.IndexFunc(all, func(m Migration) bool { return m.Version == rec.version })
		if i < 0 {
			all = append(all, Migration{
				Version: rec.version, Name: nameOfUnknown(rec.version), State: Unknown, AppliedAt: rec.at,
			})
			continue
		}
		all[i].State, all[i].AppliedAt = Applied, rec.at
	}
	slices.SortFunc(all, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return all, nil
}

// run runs one migration through goose, and reports whether this call applied it. If it returns false and no error,
// another migrator has applied it.
func (r *runner) run(ctx context.Context, m Migration, up bool) (bool, error) {
	log := r.opts.Logger.With("version", m.Version, "up", up)
	err := retryLocked(ctx, log, func() error {
		if !up && m.Version < FirstAlso {
			// Its statements lock the library's own tables.
			if err := awaitBeside(ctx, r.db, ""); err != nil {
				return err
			}
		}
		return r.attempt(ctx, log, func() error {
			_, err := r.provider.ApplyVersion(ctx, m.Version, up)
			var partial *goose.PartialError
			if errors.As(err, &partial) {
				return partial.Err // its frame only repeats the version
			}
			return err
		})
	})
	switch {
	case err == nil:
		log.InfoContext(ctx, "migration done")
		return true, nil
	case doneByAnother(err):
		log.InfoContext(ctx, "migration done by another migrator")
		return false, nil
	}
	return false, fmt.Errorf("migration %d: %w", m.Version, err)
}

// attempt runs fn, a transaction under the migration lock, once the lock is free. If fn has met maintenance on a table,
// attempt waits for its end before it returns the error for another attempt.
func (r *runner) attempt(ctx context.Context, log *slog.Logger, fn func() error) error {
	err := whenFree(ctx, r.db, log, fn)
	var met *besideError
	if errors.As(err, &met) {
		if waitErr := awaitBeside(ctx, r.db, met.table); waitErr != nil {
			return errors.Join(waitErr, err)
		}
	}
	return err
}

func (r *runner) find(version int64) (Migration, bool) {
	i := slices.IndexFunc(r.known, func(m Migration) bool { return m.Version == version })
	if i < 0 {
		return Migration{}, false
	}
	return r.known[i], true
}
