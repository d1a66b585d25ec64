package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// Roles names the roles of a deployment, each as the catalog spells it. An empty list grants nothing.
type Roles struct {
	// Applications may claim, enter and write under a claim: they have USAGE on the schema fencepost and
	// EXECUTE on the functions that this takes, and no right on any table of it.
	Applications []string
	// Owners own tables: they may protect and unprotect their own, and verify all.
	Owners []string
}

// Grant makes a goose migration that grants the roles what they need in the schema fencepost, by
// fencepost.grant_application and fencepost.grant_owner. Down takes back everything that the roles have
// been granted there. The role that runs it owns the schema. Granting twice is harmless: after a release
// that brings new functions, grant again in a new migration.
//
// It fits Options.Also, and a goose provider of the caller's that runs after the library's own
// migrations; in Options.Also a version is FirstAlso or above. It returns ErrInvalid for one below 1 and for
// a name that is empty, longer than 63 bytes, not UTF-8 or has a zero byte.
func Grant(version int64, roles Roles) (*goose.Migration, error) {
	if version < 1 {
		return nil, fmt.Errorf("%w: version %d is below 1", ErrInvalid, version)
	}
	for _, list := range [][]string{roles.Applications, roles.Owners} {
		for _, role := range list {
			if err := checkName("role", role); err != nil {
				return nil, err
			}
		}
	}
	return goose.NewGoMigration(version,
		&goose.GoFunc{RunTx: roles.up}, &goose.GoFunc{RunTx: roles.down}), nil
}

func (r Roles) up(ctx context.Context, tx *sql.Tx) error {
	return underLock(ctx, tx, func() error {
		if err := callFor(ctx, tx, "grant_application", r.Applications); err != nil {
			return err
		}
		return callFor(ctx, tx, "grant_owner", r.Owners)
	})
}

func (r Roles) down(ctx context.Context, tx *sql.Tx) error {
	return underLock(ctx, tx, func() error {
		if err := callFor(ctx, tx, "revoke_all", r.Applications); err != nil {
			return err
		}
		return callFor(ctx, tx, "revoke_all", r.Owners)
	})
}

// callFor calls a function of the schema fencepost once per role.
func callFor(ctx context.Context, tx *sql.Tx, function string, roles []string) error {
	for _, role := range roles {
		_, err := tx.ExecContext(ctx, `SELECT fencepost.`+function+
			`(pg_catalog.quote_ident($1::pg_catalog.text)::pg_catalog.regrole)`, role)
		if err != nil {
			return fmt.Errorf("%s %s: %w", function, quote(role), err)
		}
	}
	return nil
}
