package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/migrations"
)

// grantCommand grants roles what they need in the schema fencepost.
type grantCommand struct {
	Roles    []string `arg:"" name:"role" help:"A role, spelled as in the catalog: nothing is folded to lower case."`
	Operator bool     `xor:"kind" help:"The role is an operator's: it looks, and writes nothing."`
	Owner    bool     `xor:"kind" help:"The role owns tables: it protects them."`
	// Collector is for the job that runs fence gc.
	Collector bool `xor:"kind" help:"The role collects old fences (fence gc), and does nothing else."`
	migrateFlags
}

// Help is printed below the flags.
func (*grantCommand) Help() string {
	return `The schema's owner grants, as the role that runs "fencepost migrate up". Without --operator, --owner and ` +
		`--collector the roles are those of applications. Granting twice is harmless. ` +
		`"SELECT fencepost.revoke_all('role')" takes it back.

Examples:

  fencepost grant billing
  fencepost grant --operator night_shift
  fencepost grant --collector janitor
  fencepost grant --owner billing_owner --database "$DATABASE_URL"`
}

// kind is what the roles are, and what they then are by migrations.Grant.
func (c *grantCommand) kind() (string, migrations.Roles) {
	switch {
	case c.Operator:
		return "operator", migrations.Roles{Operators: c.Roles}
	case c.Collector:
		return "collector", migrations.Roles{Collectors: c.Roles}
	case c.Owner:
		return "owner", migrations.Roles{Owners: c.Roles}
	default:
		return "application", migrations.Roles{Applications: c.Roles}
	}
}

// Validate has the library look at the names.
func (c *grantCommand) Validate() error {
	_, roles := c.kind()
	if _, err := migrations.Grant(migrations.FirstAlso, roles); err != nil {
		return err
	}
	return c.migrateFlags.Validate()
}

// Run grants in one transaction: all of the roles, or none.
func (c *grantCommand) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		kind, roles := c.kind()
		grant, err := migrations.Grant(migrations.FirstAlso, roles)
		if err == nil {
			err = inTx(ctx, db, grant.UpFnContext)
		}
		granted := c.Roles
		if err != nil {
			err, granted = fmt.Errorf("grant: %w", err), []string{}
		}
		if c.JSON {
			return errors.Join(err, std.printJSON(struct {
				Granted []string `json:"granted"`
				Kind    string   `json:"kind"`
				Error   string   `json:"error,omitempty"`
			}{granted, kind, errorText(err)}))
		}
		return errors.Join(err, std.printLines(kind, granted))
	})
}
