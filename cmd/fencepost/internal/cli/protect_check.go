package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/sqlfiles"
)

// difference is one way in which a table is not as declared.
type difference struct {
	Table   string `json:"table"`
	Problem string `json:"problem"`
}

// differencesOf returns how a table differs from its declaration. The role needs what fencepost.grant_operator or
// fencepost.grant_owner gives, unless the level is one without triggers.
func differencesOf(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) (list []difference, err error) {
	look := []func(context.Context, *sql.DB, *sqlfiles.Declaration) ([]string, error){columnProblems}
	switch d.Level {
	case sqlfiles.Rule:
		look = append(look, commentProblems)
	case sqlfiles.Observe, sqlfiles.Enforce:
		look = append(look, protectionProblems, verifyProblems)
	}
	for _, fn := range look {
		problems, err := fn(ctx, db, d)
		if err != nil {
			return list, whoMayLook(err)
		}
		for _, text := range problems {
			list = append(list, difference{d.Quoted(), text})
		}
		if len(problems) > 0 {
			return list, nil // the rest follows from it
		}
	}
	return list, nil
}

// whoMayLook says what a role lacks that may not look.
func whoMayLook(err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return &statusError{exitUnavailable, fmt.Errorf(
			"%w: the schema's owner lets a role look with \"fencepost grant --operator ROLE\"", err)}
	}
	return err
}

// columnSQL finds the table and, if it has one, its token column.
const columnSQL = `SELECT a.attname IS NOT NULL, coalesce(a.atttypid = 'pg_catalog.int8'::regtype, false),
       coalesce(a.attnotnull, false), coalesce(a.attgenerated = '' AND a.attidentity = '', false)
  FROM pg_catalog.pg_class AS c
  LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped
 WHERE c.oid = pg_catalog.to_regclass($1)`

func columnProblems(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) ([]string, error) {
	var exists, bigint, notNull, stored bool
	err := db.QueryRowContext(ctx, columnSQL, d.Quoted(), d.Table.Column).Scan(&exists, &bigint, &notNull, &stored)
	column := "token column " + d.Table.Column
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return []string{"there is no such table"}, nil
	case err != nil:
		return nil, fmt.Errorf("look for the column: %w", err)
	case !exists:
		return []string{"it has no " + column}, nil
	case !bigint:
		return []string{"its " + column + " is not bigint"}, nil
	case !notNull:
		return []string{"its " + column + " may be NULL"}, nil
	case !stored:
		return []string{"its " + column + " is generated"}, nil
	}
	return nil, nil
}

func commentProblems(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) ([]string, error) {
	const query = `SELECT coalesce(pg_catalog.col_description(a.attrelid, a.attnum), '')
		FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attname = $2`
	var comment string
	if err := db.QueryRowContext(ctx, query, d.Quoted(), d.Table.Column).Scan(&comment); err != nil {
		return nil, fmt.Errorf("read the rule: %w", err)
	}
	if comment != d.Comment() {
		return []string{fmt.Sprintf("its rule is %q, not %q", comment, d.Comment())}, nil
	}
	return nil, nil
}

// protectionProblems compares what was protected with what is declared.
func protectionProblems(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) ([]string, error) {
	const query = `SELECT p.namespace, p.prefix, pg_catalog.array_to_json(p.columns)::text, p.token_column::text, p.mode,
		p.replicated FROM fencepost.protected AS p WHERE p.relid = pg_catalog.to_regclass($1)`
	var namespace, prefix, columns, column, mode string
	var replicated bool
	err := db.QueryRowContext(ctx, query, d.Quoted()).Scan(&namespace, &prefix, &columns, &column, &mode, &replicated)
	if errors.Is(err, sql.ErrNoRows) {
		return []string{"it is not protected"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the protection: %w", err)
	}
	var names []string
	if err := json.Unmarshal([]byte(columns), &names); err != nil {
		return nil, fmt.Errorf("read the protection's columns: %w", err)
	}
	var list []string
	differ := func(what string, got, want any, same bool) {
		if !same {
			list = append(list, fmt.Sprintf("its %s is %v, not %v", what, got, want))
		}
	}
	differ("mode", mode, d.Level, mode == string(d.Level))
	differ("namespace", namespace, d.Namespace, namespace == d.Namespace)
	differ("prefix", prefix, d.Prefix, prefix == d.Prefix)
	differ("list of columns", names, d.Columns, slices.Equal(names, d.Columns))
	differ("token column", column, d.Table.Column, column == d.Table.Column)
	differ("replicated", replicated, d.Replicated, replicated == d.Replicated)
	return list, nil
}

// verifyProblems returns what fencepost.verify finds of the table and its partitions.
func verifyProblems(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) (list []string, err error) {
	const query = `SELECT pg_catalog.format('%s (%s, %s)', v.problem, v.kind, v.relation) FROM fencepost.verify() AS v
		WHERE pg_catalog.to_regclass(v.protected) = pg_catalog.to_regclass($1)`
	rows, err := db.QueryContext(ctx, query, d.Quoted())
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var problem string
		if err := rows.Scan(&problem); err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		list = append(list, problem)
	}
	return list, rows.Err()
}
