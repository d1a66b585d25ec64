package checks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// migrations compares the schema with what this program would install.
func (p *postgres) migrations(ctx context.Context) (_ []finding, err error) {
	db := stdlib.OpenDBFromPool(p.pool)
	defer func() {
		if closing := db.Close(); err == nil {
			err = closing
		}
	}()
	all, err := migrations.Status(ctx, db, nil)
	switch {
	case mayNotLook(err):
		return skipped(mayVerify, "this role may not read the version table")
	case err != nil:
		return nil, err
	}
	const do = `run "fencepost migrate up" as the schema's owner`
	var pending, unrecorded, newer []string
	for _, m := range all {
		switch {
		case m.State == migrations.Pending || m.State == migrations.Partial:
			pending = append(pending, m.Name)
		case m.State == migrations.Found:
			unrecorded = append(unrecorded, m.Name)
		case m.State == migrations.Unknown && m.Version < migrations.FirstAlso:
			newer = append(newer, fmt.Sprint(m.Version))
		}
	}
	switch {
	case len(pending) > 0:
		return fault(do, "%d of %d migrations are pending: %s", len(pending), len(all), strings.Join(pending, ", "))
	case len(newer) > 0:
		return warning("use the fencepost of that release", "a newer release has migrated this database: version %s",
			strings.Join(newer, ", "))
	case len(unrecorded) > 0:
		return warning(do, "%d migrations are in the schema, and not in its version table", len(unrecorded))
	}
	return fine("all are applied")
}

// roleSQL tells what the role that looks is: it may do everything, it owns the schema, it is an application, it is an
// operator.
const roleSQL = `
SELECT current_user, r.rolsuper, pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(c.relnamespace, 'USAGE'),
       coalesce((SELECT has_function_privilege(f.oid, 'EXECUTE') FROM pg_catalog.pg_proc AS f
           WHERE f.pronamespace = c.relnamespace AND f.proname = 'enter'), false),
       coalesce((SELECT has_table_privilege(v.oid, 'SELECT') FROM pg_catalog.pg_class AS v
           WHERE v.relnamespace = c.relnamespace AND v.relname = 'fences'), false)
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles AS r ON r.rolname = current_user
 WHERE n.nspname = 'fencepost' AND c.relname = 'fence'`

// role looks at the rights of the role in the address. It should be the application's or an operator's.
func (p *postgres) role(ctx context.Context) ([]finding, error) {
	var name string
	var super, owner, usage, application, operator bool
	err := p.pool.QueryRow(ctx, roleSQL).Scan(&name, &super, &owner, &usage, &application, &operator)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return skipped("", "there is no schema fencepost yet")
	case err != nil:
		return nil, err
	}
	const own = "let the service log in as a role of its own: fencepost grant ROLE; and look as an operator: " +
		"fencepost grant --operator ROLE"
	switch {
	case super:
		return warning(own, "%s is a superuser: no right in the schema fencepost binds it", name)
	case owner:
		return warning(own, "%s acts as the owner of the schema fencepost, and may write the fences themselves", name)
	case !usage || !application && !operator:
		return fault(fmt.Sprintf("the schema's owner runs: fencepost grant %s (for an operator with --operator)", name),
			"%s was granted nothing in the schema fencepost", name)
	case application:
		return fine("%s is an application's role", name)
	}
	return fine("%s is an operator's role", name)
}

// writersSQL are the roles that may enter, apart from the owner: the applications.
const writersSQL = `
SELECT r.rolname FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
 CROSS JOIN LATERAL aclexplode(f.proacl) AS a JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
 WHERE n.nspname = 'fencepost' AND f.proname = 'enter' AND a.privilege_type = 'EXECUTE' AND a.grantee <> f.proowner
 ORDER BY r.rolname`

// applications returns the roles that may enter.
func (p *postgres) applications(ctx context.Context) ([]string, error) {
	rows, err := p.pool.Query(ctx, writersSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// wanted returns the functions that an application needs, by the list in the database, which is that of its release.
func (p *postgres) wanted(ctx context.Context) ([]string, error) {
	var list string
	err := p.pool.QueryRow(ctx, `SELECT f.prosrc FROM pg_catalog.pg_proc AS f
		JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
		WHERE n.nspname = 'fencepost' AND f.proname = 'rights'`).Scan(&list)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, found := range regexp.MustCompile(`\('application', \w+, '([^']+)'\)`).FindAllStringSubmatch(list, -1) {
		names = append(names, found[1])
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("fencepost.rights has no functions of applications: %w", errNotSaid)
	}
	return names, nil
}

// missingSQL are the functions that roles may not call.
const missingSQL = `
SELECT r.rolname, string_agg(split_part(split_part(w.name, '(', 1), '.', 2), ', ' ORDER BY w.name)
  FROM pg_catalog.pg_roles AS r CROSS JOIN unnest($2::text[]) AS w (name)
 WHERE r.rolname = ANY ($1)
   AND NOT coalesce(has_function_privilege(r.rolname, to_regprocedure(w.name), 'EXECUTE'), false)
 GROUP BY r.rolname ORDER BY r.rolname`

// functions looks at the rights of every application on every function that it calls.
func (p *postgres) functions(ctx context.Context) ([]finding, error) {
	roles, err := p.applications(ctx)
	if err != nil {
		return nil, err
	}
	wanted, err := p.wanted(ctx)
	if err != nil {
		return nil, err
	}
	if len(roles) == 0 {
		return warning("the schema's owner runs: fencepost grant ROLE", "no role has been granted what an application needs")
	}
	rows, err := p.pool.Query(ctx, missingSQL, roles, wanted)
	if err != nil {
		return nil, err
	}
	var list []finding
	var role, missing string
	_, err = pgx.ForEachRow(rows, []any{&role, &missing}, func() error {
		list = append(list, finding{
			Fault, fmt.Sprintf("%s may enter, and may not call: %s", role, missing),
			fmt.Sprintf(`the schema's owner runs: fencepost grant %s`, role),
		})
		return nil
	})
	if err != nil || len(list) > 0 {
		return list, err
	}
	return fine("each application (%s) may call all %d functions", strings.Join(roles, ", "), len(wanted))
}

const mayVerify = "the schema's owner runs: fencepost grant --operator ROLE, for the role that looks"

// verify returns what fencepost.verify finds.
func (p *postgres) verify(ctx context.Context) ([]fence.Problem, error) {
	return fence.Verify(ctx, p.pool)
}

// grants lists rights in the schema that are too wide, missing or lost.
func (p *postgres) grants(ctx context.Context) ([]finding, error) {
	problems, err := p.verify(ctx)
	switch {
	case mayNotLook(err):
		return skipped(mayVerify, "this role may not call fencepost.verify")
	case err != nil:
		return nil, err
	}
	var list []finding
	for _, problem := range problems {
		if problem.Kind == fence.ProblemRight {
			list = append(list, finding{
				Fault, fmt.Sprintf("%s: %s", problem.Relation, problem.Text),
				`run "fencepost migrate up" as the schema's owner, which repairs it`,
			})
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return fine("no right in the schema is too wide, missing or lost")
}

// quiet are the kinds of problems that leave a protection in place.
func quiet(kind fence.ProblemKind) bool {
	return slices.Contains([]fence.ProblemKind{fence.ProblemRenamed, fence.ProblemUnknown, fence.ProblemStray}, kind)
}
