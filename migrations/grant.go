package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/pressly/goose/v3"
)

// Roles names the roles of a deployment, each spelled as in the catalog. An empty list grants nothing.
type Roles struct {
	// Applications may claim, enter, and write under a claim. They get USAGE on the schema fencepost and EXECUTE on the
	// functions that this needs. They get SELECT on the version table, so that [Up] at their start does nothing if no
	// migration is pending, and on no other table of fencepost.
	Applications []string
	// Owners own tables. They may protect and unprotect their own tables, and verify all protections.
	Owners []string
	// Operators look and change nothing. They read the views fencepost.fences and fencepost.keys, the rules of
	// protected tables and the version table, and verify all protections. They see no nonce, no request and no result.
	Operators []string
	// Collectors list old fences and delete them (fence.Collect, fencepost fence gc), and do nothing else.
	Collectors []string
}

// Grant returns a goose migration that grants the roles what they need in the schema fencepost, by calling
// fencepost.grant_application, fencepost.grant_owner, fencepost.grant_operator and fencepost.grant_collector. Its Down
// revokes everything that the roles have been granted there. The role that runs it must own the schema. Granting twice
// is harmless. After a release that brings new functions, grant again in a new migration.
//
// The migration fits Options.Also. It also fits a goose provider of the caller's that runs after the library's own
// migrations. In Options.Also its version is FirstAlso or above.
//
// Grant returns ErrInvalid for a version below 1 and for a name that is empty, is longer than 63 bytes, is not UTF-8 or
// has a zero byte.
func Grant(version int64, roles Roles) (*goose.Migration, error) {
	if version < 1 {
		return nil, fmt.Errorf("%w: version %d is below 1", ErrInvalid, version)
	}
	for _, list := range [][]string{roles.Applications, roles.Owners, roles.Operators, roles.Collectors} {
		for _, role := range list {
			if err := checkName("role", role); err != nil {
				return nil, err
			}
		}
	}
	return named(version, goose.GoFunc{RunTx: roles.up}, goose.GoFunc{RunTx: roles.down}, "grant"), nil
}

func (r Roles) up(ctx context.Context, tx *sql.Tx) error {
	return underLock(ctx, tx, func() error {
		if err := callFor(ctx, tx, "grant_application", r.Applications); err != nil {
			return err
		}
		if err := callFor(ctx, tx, "grant_owner", r.Owners); err != nil {
			return err
		}
		if err := callFor(ctx, tx, "grant_operator", r.Operators); err != nil {
			return err
		}
		return callFor(ctx, tx, "grant_collector", r.Collectors)
	})
}

func (r Roles) down(ctx context.Context, tx *sql.Tx) error {
	return underLock(ctx, tx, func() error {
		return callFor(ctx, tx, "revoke_all", slices.Concat(r.Applications, r.Owners, r.Operators, r.Collectors))
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
