package pgtable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// Protection is the rule by which a protected table names the resources of its rows, as given to fencepost.protect: the
// namespace, ":", the prefix, and the values of the columns, in order.
type Protection struct {
	Namespace, Prefix string
	Columns           []string
	TokenColumn       string
}

// Equal reports whether two protections are the same.
func (d Protection) Equal(o Protection) bool {
	return d.Namespace == o.Namespace && d.Prefix == o.Prefix && d.TokenColumn == o.TokenColumn &&
		slices.Equal(d.Columns, o.Columns)
}

// String formats the rule for people.
func (d Protection) String() string {
	return fmt.Sprintf("namespace %q, prefix %q, columns %q, token column %q",
		d.Namespace, d.Prefix, d.Columns, d.TokenColumn)
}

const protectionSQL = `SELECT coalesce(namespace, ''), coalesce(prefix, ''), coalesce(columns, '{}'),
	coalesce(token_column, ''), coalesce(wrong, '')
	FROM fencepost.protection_rule($1::text, $2::text) WHERE ` + pgsql.OnPrimary

// ProtectionOf returns the rule that protects a table, or the partitioned table that it is a part of; nil if there is
// none. Every role that may enter may call it. The rule is what was given to protect; [Verify] says whether the
// protection still stands.
//
// Errors: ErrInvalid before anything is sent; ErrUnavailable, also if a standby answers; a *TableError for a table that
// was detached from a protected one, or that has the name of a protected one but no protection, because the other was
// renamed or dropped. ctx bounds the call.
func ProtectionOf(ctx context.Context, db pgsession.Querier, t Table) (*Protection, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	var d Protection
	var wrong string
	found := true
	err := pgsession.OnConn(ctx, db, "ask for the protection", func(db pgsession.Querier) error {
		err := db.QueryRow(ctx, protectionSQL, t.Schema, t.Name).
			Scan(&d.Namespace, &d.Prefix, &d.Columns, &d.TokenColumn, &wrong)
		if errors.Is(err, pgx.ErrNoRows) {
			found = false
			return nil
		}
		return pgerr.InterpretOwn(ctx, "ask for the protection", err)
	})
	if err != nil || !found {
		return nil, err
	}
	if wrong != "" {
		return nil, Unfit(t, "no protection (fencepost.protect) where there should be one: %s", wrong)
	}
	return &d, nil
}
