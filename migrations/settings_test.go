package migrations_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// Whatever a session, a role or a database has set, the migrations create the same objects, no problem is reported by
// mistake, and no right is revoked.
func TestSettingsOfASessionDoNotMatter(t *testing.T) {
	t.Parallel()
	rule := accountsRule(`account"\:`)
	for setting, value := range map[string]string{
		"quote_all_identifiers":         "on",
		"standard_conforming_strings":   "off",
		"bytea_output":                  "escape",
		"transform_null_equals":         "on",
		"check_function_bodies":         "off",
		"array_nulls":                   "off",
		"row_security":                  "off",
		"default_transaction_isolation": "serializable",
		"datestyle":                     "German",
		"intervalstyle":                 "iso_8601",
		"search_path":                   "public, pg_catalog",
		"plpgsql.variable_conflict":     "use_column",
	} {
		for name, made := range map[string]bool{"made under it": true, "looked at under it": false} {
			t.Run(setting+", "+name, func(t *testing.T) {
				t.Parallel()
				address := testenv.EmptyDatabase(t)
				plain, set := open(t, address), open(t, withParameter(t, address, setting, value))
				maker := plain
				if made {
					maker = set
				}
				mustExec(t, plain, createAccounts)
				up(t, maker, &migrations.Options{Also: []*goose.Migration{tokenColumn(t, accounts), protection(t, 1001, rule)}})
				role := quoted(loginRole(t, plain, "owner"))
				mustExec(t, maker, `SELECT fencepost.grant_owner('`+role+`')`, `SELECT fencepost.grant_application('`+role+`')`)
				for _, db := range []*sql.DB{set, plain} {
					wantRights(t, db)
					wantStates(t, db, "ZF004", `UPDATE public.accounts SET balance = 0 WHERE id = 1`)
				}
			})
		}
	}
}

// In pgx's modes without binary results a time is a text, in whatever style the session has.
func TestStatusReadsTimesInAnyDateStyle(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	before := time.Now().Add(-time.Minute)
	for _, style := range []string{"ISO", "German", "SQL, DMY", "Postgres"} {
		for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
			db := open(t, withParameter(t, withParameter(t, address, "datestyle", style), "default_query_exec_mode", mode))
			up(t, db, nil)
			states, err := migrations.Status(t.Context(), db, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", style, mode, err)
				continue
			}
			for _, s := range states {
				if s.AppliedAt.Before(before) || s.AppliedAt.After(time.Now().Add(time.Minute)) {
					t.Errorf("%s, %s: version %d was applied at %v", style, mode, s.Version, s.AppliedAt)
				}
			}
		}
	}
}
