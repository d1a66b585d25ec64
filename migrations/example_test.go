package migrations_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/migrations"
)

// A service that migrates when it starts: fencepost's own schema, then the token column of its
// table. Every replica may do so at once.
func Example() {
	start := func(ctx context.Context, db *sql.DB) error {
		invoices, err := migrations.TokenColumn(1000, migrations.Table{Schema: "billing", Name: "invoices"})
		if err != nil {
			return err
		}
		applied, err := migrations.Up(ctx, db, &migrations.Options{Also: []*goose.Migration{invoices}})
		for _, m := range applied {
			fmt.Println("applied", m.Version)
		}
		return err
	}
	_ = start
}
