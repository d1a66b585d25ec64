package migrations_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/migrations"
)

// A program that migrates: fencepost's own schema, then the token column of its table. The deployment runs it as
// the role that owns both. A service may run it when it starts, every replica at once: as the owner, or, once the
// deployment has migrated, as an application's role, for which it is a no-op then.
func Example() {
	migrate := func(ctx context.Context, db *sql.DB) error {
		invoices, err := migrations.TokenColumn(1000, migrations.Table{Schema: "billing", Name: "invoices"})
		if err != nil {
			return err
		}
		applied, err := migrations.Up(ctx, db, &migrations.Options{Also: []*goose.Migration{invoices}})
		for _, m := range applied {
			fmt.Println("applied", m.Name)
		}
		return err
	}
	_ = migrate
}
