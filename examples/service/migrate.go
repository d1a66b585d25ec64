package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/migrations"
)

// schema adds a token column to each table that a fencepost.Table writes. The outbox needs none.
const schema = `
	CREATE SCHEMA app;
	CREATE TABLE app.invoice (id text PRIMARY KEY, cents bigint NOT NULL, status text NOT NULL DEFAULT 'open',
		last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0));
	CREATE TABLE app.charge (customer text, id text, cents bigint NOT NULL, PRIMARY KEY (customer, id),
		last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0));
	CREATE TABLE app.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL,
		slot text, sent_at timestamptz);
	CREATE INDEX ON app.outbox (id) WHERE sent_at IS NULL;
	CREATE TABLE app.report (day date, line text, value bigint NOT NULL, PRIMARY KEY (day, line));`

// migrate creates what the service needs, if it runs as the owner of the database. After that it does nothing, also as
// the application's role. If a migration is pending, it returns an error to that role. Any number of processes may run
// it at once. The application's role gets rights on the service's own tables. Of fencepost's tables it may read only
// the version table.
func migrate(ctx context.Context, databaseURL, role string) error {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	app := pgx.Identifier{role}.Sanitize()
	tables := goose.NewGoMigration(1000, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema+`GRANT USAGE ON SCHEMA app TO `+app+`;
			GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA app TO `+app)
		return err
	}}, nil)
	grant, errGrant := migrations.Grant(1001, migrations.Roles{Applications: []string{role}})
	protect, errProtect := migrations.Protect(1002, migrations.Protection{ // the store's namespace, the table's rule
		Table:     migrations.Table{Schema: "app", Name: "invoice"},
		Namespace: "billing", Prefix: "invoice:", Columns: []string{"id"},
	})
	if err := errors.Join(errGrant, errProtect); err != nil {
		return err
	}
	_, err = migrations.Up(ctx, db, &migrations.Options{Also: []*goose.Migration{tables, grant, protect}})
	return err
}
