package checks

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// table is a table whose rows carry tokens.
type table struct {
	Name   string
	Mode   string // of its protection; "" without one
	Rule   string // of its protection
	Fits   string // what is wrong with the token column; "" if nothing is
	Unique bool   // has a primary key or another total unique index
	// Owners are applications that act as the table's owner. Blind may write it, and may not read it or stamp its rows.
	// Writers may write it.
	Owners, Blind, Writers []string
}

// tablesSQL reads them. $1 are the applications, $2 the names of token columns.
const tablesSQL = `
SELECT c.oid::regclass::text, '', '',
       CASE WHEN 'pg_catalog.int8'::regtype NOT IN (a.atttypid, t.typbasetype) THEN 'is not bigint'
            WHEN NOT a.attnotnull THEN 'may be NULL'
            WHEN a.attgenerated <> '' OR a.attidentity <> '' THEN 'is generated' ELSE '' END,
       EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
                  AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL),
       coalesce(array_agg(r.rolname::text ORDER BY r.rolname) FILTER (
           WHERE pg_has_role(r.oid, c.relowner, 'USAGE')), '{}'),
       coalesce(array_agg(r.rolname::text ORDER BY r.rolname) FILTER (WHERE w.writes AND NOT (
           has_schema_privilege(r.oid, c.relnamespace, 'USAGE')
           AND has_column_privilege(r.oid, c.oid, a.attnum, 'SELECT')
           AND has_column_privilege(r.oid, c.oid, a.attnum, 'UPDATE'))), '{}'),
       coalesce(array_agg(r.rolname::text ORDER BY r.rolname) FILTER (WHERE w.writes), '{}')
  FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = ANY ($1::text[])
  LEFT JOIN LATERAL (SELECT has_any_column_privilege(r.oid, c.oid, 'INSERT,UPDATE')
           OR has_table_privilege(r.oid, c.oid, 'DELETE')) AS w (writes) ON true
 WHERE a.attname = ANY ($2::text[]) AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND n.nspname <> 'fencepost' AND n.nspname !~ '^pg_' AND c.relpersistence <> 't'
 GROUP BY c.oid, c.relowner, c.relnamespace, a.attnum, a.attnotnull, a.atttypid, a.attgenerated,
       a.attidentity, t.typbasetype
 ORDER BY 1`

// rulesSQL reads how tables are protected.
const rulesSQL = `
SELECT p.relid::regclass::text, p.mode, p.token_column::text,
       p.namespace || ':' || p.prefix
           || coalesce((SELECT string_agg('{' || k || '}', '/') FROM unnest(p.columns) AS k), '')
  FROM fencepost.protected AS p WHERE EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = p.relid)`

// rule is how a table is protected.
type rule struct{ Name, Mode, Column, Resource string }

// tables looks at each table with a protection or with a column of the usual name: its column, key, triggers, rule and
// rights.
func (p *postgres) tables(ctx context.Context) ([]finding, error) {
	problems, err := p.verify(ctx)
	if mayNotLook(err) {
		return skipped(mayVerify, "this role may not call fencepost.verify, nor read the rules")
	}
	if err != nil {
		return nil, err
	}
	roles, err := p.applications(ctx)
	if err != nil {
		return nil, err
	}
	list := broken(problems)
	tables, err := p.readTables(ctx, roles)
	if err != nil {
		return list, err
	}
	for _, t := range tables {
		list = append(list, t.judge(roles)...)
	}
	if len(list) == 0 {
		return warning("add a token column: fencepost protect --level column schema.table=RESOURCE",
			"no table has a token column or a protection")
	}
	return list, nil
}

// broken are the findings of verify that are not about rights.
func broken(problems []fence.Problem) (list []finding) {
	for _, problem := range problems {
		if problem.Kind == fence.ProblemRight {
			continue
		}
		level := Fault
		if quiet(problem.Kind) {
			level = Warning
		}
		list = append(list, finding{
			level, fmt.Sprintf("%s: %s (%s)", problem.Relation, problem.Text, problem.Kind),
			"protect it again as its owner: fencepost protect --apply, with the same arguments",
		})
	}
	return list
}

func (p *postgres) readTables(ctx context.Context, roles []string) ([]table, error) {
	rows, err := p.pool.Query(ctx, rulesSQL)
	if err != nil {
		return nil, err
	}
	rules, err := pgx.CollectRows(rows, pgx.RowToStructByPos[rule])
	if err != nil {
		return nil, err
	}
	columns := []string{"last_fencing_token"}
	of := make(map[string]rule, len(rules))
	for _, r := range rules {
		columns = append(columns, r.Column)
		of[r.Name] = r
	}
	if rows, err = p.pool.Query(ctx, tablesSQL, roles, columns); err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	for i := range tables {
		r := of[tables[i].Name]
		tables[i].Mode, tables[i].Rule = r.Mode, r.Resource
	}
	return tables, err
}

// judge returns what is to be said about a table: what is wrong with it, or else one line.
func (t *table) judge(applications []string) (list []finding) {
	add := func(level Level, do, format string, args ...any) {
		list = append(list, finding{level, t.Name + ": " + fmt.Sprintf(format, args...), do})
	}
	if t.Fits != "" {
		add(Fault, "make it bigint NOT NULL DEFAULT 0", "its token column %s", t.Fits)
	}
	if !t.Unique {
		add(Warning, "give it a primary key", "it has no primary key and no total unique index: NewTable refuses it")
	}
	if t.Mode == "observe" {
		add(Warning, `once the log has no more lines with "fencepost observe:": fencepost protect --level enforce`,
			"its protection only logs what it would refuse")
	}
	if t.Mode != "" && len(t.Owners) > 0 {
		add(Warning, "give the table an owner that no service logs in as",
			"%s acts as its owner, and may take the protection away", strings.Join(t.Owners, ", "))
	}
	if len(t.Blind) > 0 {
		add(Fault, "grant SELECT and UPDATE of the token column, and USAGE of the schema",
			"%s may write it, and may not read or stamp its token column", strings.Join(t.Blind, ", "))
	}
	if len(applications) > 0 && len(t.Writers) == 0 {
		add(Warning, "grant an application SELECT, INSERT, UPDATE as its work needs", "no application may write it")
	}
	switch {
	case len(list) > 0:
	case t.Mode == "":
		add(OK, "", "rows carry tokens; it has no protection, so code that does not compare them is not refused")
	default:
		add(OK, "", "protected, every row as %s", t.Rule)
	}
	return list
}
