package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// If PostgreSQL refuses a privilege, its error says what was refused, but not which role has to do the work. The code
// in this file adds that role.

// roleError is a refused privilege together with the role that has to act. It carries the server's SQLSTATE 42501.
type roleError struct {
	hint string
	err  error
}

func (e *roleError) Error() string { return e.hint + ": " + e.err.Error() }

func (e *roleError) Unwrap() error { return e.err }

// withoutHint reports whether err is a refused privilege that names no role yet.
func withoutHint(err error) bool {
	var hinted *roleError
	return sqlState(err) == stateDenied && !errors.As(err, &hinted)
}

// migratorSQL returns the current role, whether that role may create the schema, whether it may read the version table,
// and the schema's owner. It names nothing that the role may not see. If the owner is NULL, the schema does not exist.
const migratorSQL = `
SELECT CURRENT_USER::pg_catalog.text, pg_catalog.current_database()::pg_catalog.text,
       coalesce((SELECT pg_catalog.pg_get_userbyid(n.nspowner)::pg_catalog.text FROM pg_catalog.pg_namespace AS n
                  WHERE n.nspname OPERATOR(pg_catalog.=) 'fencepost'), ''),
       coalesce((SELECT pg_catalog.pg_has_role(n.nspowner, 'USAGE') FROM pg_catalog.pg_namespace AS n
                  WHERE n.nspname OPERATOR(pg_catalog.=) 'fencepost'), false),
       coalesce((SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                        AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
                   FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_class AS c
                     ON c.relnamespace OPERATOR(pg_catalog.=) n.oid
                  WHERE n.nspname OPERATOR(pg_catalog.=) 'fencepost'
                    AND c.relname OPERATOR(pg_catalog.=) 'goose_version'), true)`

// explain adds to a refused privilege the role that runs the migrations. It returns err unchanged if it cannot find
// that role, or if the current role is that role.
func explain(ctx context.Context, db *sql.DB, opts *Options, err error) error {
	if !withoutHint(err) {
		return err
	}
	var role, database, owner string
	var isOwner, mayRead bool
	row := db.QueryRowContext(ctx, migratorSQL)
	if row.Scan(&role, &database, &owner, &isOwner, &mayRead) != nil || isOwner {
		return err
	}
	hint := fmt.Sprintf("role %s may not change the schema fencepost: its owner %s runs the migrations",
		quote(role), quote(owner))
	switch {
	case owner == "":
		hint = fmt.Sprintf("role %s may not create the schema fencepost: a role with CREATE on the database %s "+
			"runs the migrations", quote(role), quote(database))
	case !mayRead:
		hint = fmt.Sprintf("role %s may not read which migrations are applied: the owner of the schema fencepost, %s, "+
			"runs the migrations, and grants reading with SELECT fencepost.grant_application(%s)",
			quote(role), quote(owner), literal(quote(role)))
	}
	if opts != nil && len(opts.Also) > 0 {
		hint += " (those in Options.Also run as the same role; if their tables have another owner, " +
			"run them in a goose provider of that owner's own)"
	}
	return &roleError{hint: hint, err: err}
}

// tableRolesSQL returns the current role, the table's owner, and whether the current role may act as that owner.
const tableRolesSQL = `
SELECT CURRENT_USER::pg_catalog.text, pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text,
       pg_catalog.pg_has_role(c.relowner, 'USAGE')
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) $1::pg_catalog.text
   AND c.relname::pg_catalog.text OPERATOR(pg_catalog.=) $2::pg_catalog.text`

// asOwner runs fn, which changes the table. If PostgreSQL refuses a privilege, asOwner adds to the error the role that
// has to act. It looks up the owner before it calls fn, because a transaction answers no query after an error.
func (t Table) asOwner(ctx context.Context, tx *sql.Tx, fn func() error) error {
	var role, owner string
	var isOwner bool
	lookErr := tx.QueryRowContext(ctx, tableRolesSQL, t.Schema, t.Name).Scan(&role, &owner, &isOwner)
	if lookErr != nil && !errors.Is(lookErr, sql.ErrNoRows) {
		return fmt.Errorf("look for the table's owner: %w", lookErr)
	}
	err := fn()
	if lookErr != nil || !withoutHint(err) { // a table that is not there has no owner
		return err
	}
	hint := fmt.Sprintf("%s belongs to %s, and the migration ran as %s: run it as the table's owner, in a goose provider "+
		"of that role's own (see migrations.Options.Also)", t.quoted(), quote(owner), quote(role))
	if isOwner {
		hint = fmt.Sprintf("role %[1]s owns %[2]s and lacks rights in the schema fencepost: "+
			"its owner grants them with SELECT fencepost.grant_owner(%[3]s)", quote(role), t.quoted(), literal(quote(role)))
	}
	return &roleError{hint: hint, err: err}
}
