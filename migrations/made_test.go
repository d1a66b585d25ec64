package migrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// A migration without a record is recognised by what it creates: each creates something that no other does, and every
// object is listed.
func TestEachMigrationIsKnownByNamesOfItsOwn(t *testing.T) {
	t.Parallel()
	made, err := migrations.Made()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range ownMigrations(t, migrations.Pending) {
		names := made[m.Version]
		if len(names) == 0 {
			t.Errorf(
				"migration %d makes no table and no function of a new name: a clone of the schema cannot tell that it was applied",
				m.Version,
			)
		}
		for _, name := range names {
			if slices.Contains(all, name) {
				t.Errorf("%s is made twice", name)
			}
			all = append(all, name)
		}
	}
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, nil)
	slices.Sort(all)
	const standing = `SELECT string_agg(DISTINCT o.name, ' ' ORDER BY o.name) FROM (
		SELECT c.relname::text COLLATE "C" FROM pg_class AS c WHERE c.relnamespace = 'fencepost'::regnamespace
			AND c.relkind IN ('r', 'v')
		UNION ALL SELECT f.proname::text FROM pg_proc AS f WHERE f.pronamespace = 'fencepost'::regnamespace) AS o (name)
		WHERE o.name NOT IN ('goose_version', 'begin_migration')`
	if got, want := value[string](t, db, standing), strings.Join(all, " "); got != want {
		t.Errorf("what stands is not what is known to be made:\n%s\n%s", got, want)
	}
}
