package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

// A dump of the schema alone contains everything that the migrations create, but no row of the version table. So this
// package looks in the schema for a migration that has no record. The migration counts as found if everything that it
// creates exists.

var (
	creates = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?(?:TABLE|VIEW|FUNCTION) fencepost\.(\w+)`)
	drops   = regexp.MustCompile(`(?m)^DROP (?:TABLE|VIEW|FUNCTION) fencepost\.(\w+)`)
)

// made returns the names in the schema fencepost by which each of the library's own migrations is recognised: the
// tables, views and functions that it creates, that no earlier migration creates, and that no later one drops.
// TestEachMigrationIsKnownByNamesOfItsOwn holds that each migration has such names.
func made() (map[int64][]string, error) {
	paths, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	names := make(map[int64][]string)
	var earlier []string
	for _, path := range paths { // in the order of versions
		version, err := goose.NumericComponent(path)
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "\n-- +goose Down")
		for _, m := range drops.FindAllStringSubmatch(up, -1) {
			for v := range names {
				names[v] = slices.DeleteFunc(names[v], func(name string) bool { return name == m[1] })
			}
		}
		for _, m := range creates.FindAllStringSubmatch(up, -1) {
			if !slices.Contains(earlier, m[1]) {
				names[version], earlier = append(names[version], m[1]), append(earlier, m[1])
			}
		}
	}
	return names, nil
}

// standingSQL lists the tables, views and functions in the schema fencepost.
const standingSQL = `
SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c
 WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('fencepost')::pg_catalog.oid
   AND c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) ANY ('{r,v}'::pg_catalog.text[])
 UNION ALL
SELECT f.proname::pg_catalog.text FROM pg_catalog.pg_proc AS f
 WHERE f.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('fencepost')::pg_catalog.oid`

// findUnrecorded sets the state of those of the library's own migrations in list that have no record. The state becomes
// Found or Partial, or stays as it is. For the first Partial migration findUnrecorded returns what exists and what is
// missing.
func findUnrecorded(ctx context.Context, db querier, h history, list []Migration) (partial string, err error) {
	own := func(m Migration) bool { return m.Version < FirstAlso && !h.has(m.Version) }
	if !slices.ContainsFunc(list, own) {
		return "", nil
	}
	names, err := made()
	if err != nil {
		return "", fmt.Errorf("read the migrations: %w", err)
	}
	standing, err := texts(ctx, db, standingSQL)
	if err != nil {
		return "", fmt.Errorf("look at the schema: %w", err)
	}
	for i := range list {
		if !own(list[i]) {
			continue
		}
		there, missing := split(names[list[i].Version], standing)
		switch {
		case len(there) == 0: // as it is
		case len(missing) == 0:
			list[i].State = Found
		default:
			list[i].State = Partial
			partial = cmp.Or(partial, fmt.Sprintf("of migration %d, which is not recorded, %s stands and %s is missing",
				list[i].Version, strings.Join(there, ", "), strings.Join(missing, ", ")))
		}
	}
	return partial, nil
}

// split returns the names that exist and those that do not.
func split(names, standing []string) (there, missing []string) {
	for _, name := range names {
		if slices.Contains(standing, name) {
			there = append(there, name)
		} else {
			missing = append(missing, name)
		}
	}
	return there, missing
}

// prepare creates what goose needs and records the migrations that it finds, in one transaction. It returns the history
// after that and the migrations that it has recorded.
func (r *runner) prepare(ctx context.Context) (h history, found []Migration, err error) {
	err = whenFree(ctx, r.db, r.opts.Logger, func() error {
		return inTx(ctx, r.db, func(tx *sql.Tx) error {
			if err := execAll(ctx, tx, bootstrapSQL); err != nil {
				return err
			}
			if found, err = r.recordFound(ctx, tx); err != nil {
				return err
			}
			h, err = readHistory(ctx, tx)
			return err
		})
	})
	return h, found, err
}

// recordFound runs under the migration lock. So whatever another migrator creates meanwhile exists either with its
// record or not at all.
func (r *runner) recordFound(ctx context.Context, tx *sql.Tx) ([]Migration, error) {
	h, err := readHistory(ctx, tx)
	if err != nil {
		return nil, err
	}
	pending := r.pending(h)
	partial, err := findUnrecorded(ctx, tx, h, pending)
	if err != nil {
		return nil, err
	}
	if partial != "" {
		return nil, fmt.Errorf("%w: %s", ErrPartial, partial)
	}
	found := slices.DeleteFunc(pending, func(m Migration) bool { return m.State != Found })
	for _, m := range found {
		const record = `INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES ($1, true)`
		if _, err := tx.ExecContext(ctx, record, m.Version); err != nil {
			return nil, fmt.Errorf("record migration %d: %w", m.Version, err)
		}
		r.opts.Logger.InfoContext(ctx, "migration found in the schema and recorded", "version", m.Version)
	}
	return found, nil
}
