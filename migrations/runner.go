package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pressly/goose/v3"
)

// The library's own migrations whose Down refuses while what they made is in use.
const (
	fenceVersion   = 1
	onceVersion    = 3
	protectVersion = 4
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
		r.known = append(r.known, Migration{Version: s.Version, Name: nameOf(s.Path), State: Pending})
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

func (r *runner) up(ctx context.Context) ([]Migration, error) {
	h, err := readHistory(ctx, r.db)
	if err != nil {
		return nil, err
	}
	pending := slices.DeleteFunc(slices.Clone(r.known), func(m Migration) bool {
		return h.has(m.Version)
	})
	if len(pending) == 0 {
		return nil, nil
	}
	if !h.exists {
		if err := bootstrap(ctx, r.db); err != nil {
			return nil, fmt.Errorf("create schema and version table: %w", err)
		}
	}
	var applied []Migration
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
	return applied, nil
}

func (r *runner) down(ctx context.Context) ([]Migration, error) {
	h, err := readHistory(ctx, r.db)
	if err != nil {
		return nil, err
	}
	// Known or not is settled for all of them before the first is taken down.
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
	for _, rec := range h.records {
		i := slices.IndexFunc(all, func(m Migration) bool { return m.Version == rec.version })
		if i < 0 {
			all = append(all, Migration{Version: rec.version, State: Unknown, AppliedAt: rec.at})
			continue
		}
		all[i].State, all[i].AppliedAt = Applied, rec.at
	}
	slices.SortFunc(all, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return all, nil
}

// run runs one migration through goose, and reports whether this call did it. A false without an
// error means that another migrator did.
func (r *runner) run(ctx context.Context, m Migration, up bool) (bool, error) {
	log := r.opts.Logger.With("version", m.Version, "up", up)
	err := retryLocked(ctx, log, func() error {
		_, err := r.provider.ApplyVersion(ctx, m.Version, up)
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			return partial.Err // its frame only repeats the version
		}
		return err
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

// inUse returns what a migration's Down refuses to give up: the table that tells whether it is there, and
// the statements that make the database forget it.
func inUse(version int64) (table string, forget []string) {
	switch version {
	case fenceVersion:
		return "fencepost.fence", []string{`TRUNCATE fencepost.fence`}
	case onceVersion:
		return "fencepost.ledger", []string{`TRUNCATE fencepost.ledger`}
	case protectVersion:
		return "fencepost.protected", []string{
			`SELECT fencepost.unprotect(c.oid) FROM fencepost.protected AS p JOIN pg_catalog.pg_class AS c
				ON c.oid OPERATOR(pg_catalog.=) p.relid`,
			// Those that protect does not know of.
			`SELECT fencepost.unprotect(c.oid) FROM pg_catalog.pg_class AS c WHERE EXISTS (
				SELECT FROM pg_catalog.pg_trigger AS g JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) g.tgfoid
				 WHERE g.tgrelid OPERATOR(pg_catalog.=) c.oid
				   AND f.pronamespace OPERATOR(pg_catalog.=) 'fencepost'::pg_catalog.regnamespace)`,
		}
	}
	return "", nil
}

// forget makes the database forget what a migration's Down would refuse to give up, in a transaction of its own.
func (r *runner) forget(ctx context.Context, version int64) error {
	table, statements := inUse(version)
	if table == "" {
		return nil
	}
	const exists = `SELECT pg_catalog.to_regclass($1::pg_catalog.text) IS NOT NULL`
	return retryLocked(ctx, r.opts.Logger, func() error {
		return inTx(ctx, r.db, func(tx *sql.Tx) error {
			if err := lockMigrations(ctx, tx); err != nil {
				return err
			}
			var there bool
			if err := tx.QueryRowContext(ctx, exists, table).Scan(&there); err != nil || !there {
				return err
			}
			return execAll(ctx, tx, statements...)
		})
	})
}

func (r *runner) find(version int64) (Migration, bool) {
	i := slices.IndexFunc(r.known, func(m Migration) bool { return m.Version == version })
	if i < 0 {
		return Migration{}, false
	}
	return r.known[i], true
}

func (h history) has(version int64) bool {
	return slices.ContainsFunc(h.records, func(r record) bool { return r.version == version })
}
