package migrations_test

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/migrations"
)

// Two roles: one owns the schema fencepost, the other owns the tables of billing. Each migrates what it owns. The owner
// of the schema runs Up first, and grants the other what Protect needs: migrations.Grant, or
// SELECT fencepost.grant_owner('billing_owner'). The owner of the tables then runs this in a goose provider of its own,
// with a version table of its own.
func ExampleProtect_tableOwner() {
	// db logs in as the owner of billing.
	deploy := func(ctx context.Context, db *sql.DB) error { return migrateBilling(ctx, db) }
	_ = deploy
}

func migrateBilling(ctx context.Context, db *sql.DB) error {
	invoices := migrations.Table{Schema: "billing", Name: "invoices"}
	column, err := migrations.TokenColumn(1, invoices)
	if err != nil {
		return err
	}
	protection, err := migrations.Protect(2, migrations.Protection{
		Table: invoices, Namespace: "billing", Prefix: "invoice:", Columns: []string{"id"},
	})
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, nil,
		goose.WithGoMigrations(column, protection),
		goose.WithTableName("billing.goose_db_version"),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
