package fence_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// functionsWhere returns the functions of the schema for which a condition is true.
func functionsWhere(t *testing.T, db pgx.Tx, condition string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT f.oid::regprocedure::text FROM pg_proc AS f
		WHERE f.pronamespace = 'fencepost'::regnamespace AND `+condition)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// \df+ shows a description for each function, including those that protect creates. The control: a function without a
// comment is found.
func TestEveryFunctionOfTheSchemaHasAComment(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	const mute = `coalesce(obj_description(f.oid, 'pg_proc'), '') = ''`
	if names := functionsWhere(t, tx, mute); len(names) != 0 {
		t.Errorf("functions without a comment: %q", names)
	}
	fencetest.Exec(t, tx, `COMMENT ON FUNCTION fencepost.mark() IS NULL`)
	if names := functionsWhere(t, tx, mute); len(names) != 1 || names[0] != "fencepost.mark()" {
		t.Errorf("the control found %q", names)
	}
}

// The reference has a section for each function that roles other than the schema's owner call, and for no other.
func TestTheReferenceHasEveryPublicFunction(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^### `fencepost\\.(\\w+)").FindAllStringSubmatch(string(page), -1) {
		documented["fencepost."+m[1]] = true
	}
	pool := fencetest.Setup(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	// The functions that protect and unprotect call with the rights of the table's owner are granted, but are not public.
	public := functionsWhere(
		t,
		tx,
		`(f.proname IN ('grant_application', 'grant_owner', 'grant_operator', 'grant_collector', 'revoke_all',
		'protect', 'unprotect', 'verify')
		OR f.oid IN (SELECT r.function::regprocedure FROM fencepost.rights() AS r WHERE r.who <> 'owner'))`,
	)
	called := make(map[string]bool)
	for _, name := range public {
		name, _, _ = strings.Cut(name, "(")
		if called[name] = true; !documented[name] {
			t.Errorf("docs/sql.md has no section for %s", name)
		}
	}
	for name := range documented {
		if !called[name] {
			t.Errorf("docs/sql.md has a section for %s, which is not public", name)
		}
	}
}
