package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/migrations"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Apply what is pending. Safe to run any number of times at once, and behind PgBouncer."`
	Down   migrateDown   `cmd:"" help:"Take everything down again. Refuses while a table carries tokens."`
	Status migrateStatus `cmd:"" help:"Show what is applied and what is pending. Changes nothing."`
}

// migrateFlags are common to the three.
type migrateFlags struct {
	Database string `required:"" env:"FENCEPOST_POSTGRES_URL" placeholder:"URL" help:"The database, as postgres://user:password@host:port/name."`
	JSON     bool   `name:"json" help:"Print one JSON object."`
}

// Validate refuses an empty address, under which the driver would look for one by itself.
func (f *migrateFlags) Validate() error {
	if f.Database == "" {
		return errors.New("--database is empty")
	}
	if _, err := pgx.ParseConfig(f.Database); err != nil {
		return errors.New("--database is not a PostgreSQL address") // the cause quotes it
	}
	return nil
}

type migrateUp struct {
	migrateFlags
}

type migrateDown struct {
	migrateFlags
	Yes   bool `help:"Needed: yes, drop fencepost's table and functions."`
	Force bool `help:"Drop them although they remember tokens. Workers still running, however stale, can write afterwards."`
}

// Validate demands the word.
func (c *migrateDown) Validate() error {
	if err := c.migrateFlags.Validate(); err != nil {
		return err
	}
	if !c.Yes {
		return errors.New("migrate down drops fencepost's table and functions: add --yes")
	}
	return nil
}

type migrateStatus struct {
	migrateFlags
}

// migration is one migration in the JSON output.
type migration struct {
	Version   int64            `json:"version"`
	Name      string           `json:"name,omitempty"`
	State     migrations.State `json:"state"`
	AppliedAt *time.Time       `json:"applied_at,omitempty"`
}

// Run applies what is pending.
func (c *migrateUp) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		applied, err := migrations.Up(ctx, db, nil)
		result := struct {
			Applied []migration `json:"applied"`
			Error   string      `json:"error,omitempty"`
		}{describe(applied), errorText(err)}
		if c.JSON {
			return errors.Join(err, std.printJSON(result))
		}
		return errors.Join(err, std.printMigrations(applied, err, "nothing to apply"))
	})
}

// Run takes everything down.
func (c *migrateDown) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		reverted, err := migrations.Down(ctx, db, &migrations.Options{Force: c.Force})
		result := struct {
			Reverted []migration `json:"reverted"`
			Error    string      `json:"error,omitempty"`
		}{describe(reverted), errorText(err)}
		if c.JSON {
			return errors.Join(err, std.printJSON(result))
		}
		return errors.Join(err, std.printMigrations(reverted, err, "nothing to take down"))
	})
}

// Run shows how every migration stands.
func (c *migrateStatus) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		all, err := migrations.Status(ctx, db, nil)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(struct {
				Migrations []migration `json:"migrations"`
			}{describe(all)})
		}
		return std.printMigrations(all, nil, "no migrations")
	})
}

// withDatabase opens the database for fn. It does not connect by itself.
func (f *migrateFlags) withDatabase(fn func(db *sql.DB) error) (err error) {
	config, err := pgx.ParseConfig(f.Database)
	if err != nil {
		return errors.New("--database is not a PostgreSQL address") // the cause quotes it
	}
	// Behind a pooler in transaction mode a prepared statement may be missing, or be there already.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	defer func() {
		if closeErr := db.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the database: %w", closeErr))
		}
	}()
	return fn(db)
}

// printMigrations writes a line per migration; after an error it says nothing of having none.
func (s *streams) printMigrations(list []migrations.Migration, err error, none string) error {
	if len(list) == 0 && err == nil {
		return s.printf("%s\n", none)
	}
	for _, m := range list {
		at := ""
		if !m.AppliedAt.IsZero() {
			at = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		name := m.Name
		if name == "" {
			name = fmt.Sprintf("%05d", m.Version)
		}
		if err := s.printf("%-8s %-24s %s\n", m.State, name, at); err != nil {
			return err
		}
	}
	return nil
}

func describe(list []migrations.Migration) []migration {
	out := make([]migration, 0, len(list)) // an empty list, not null
	for _, m := range list {
		d := migration{Version: m.Version, Name: m.Name, State: m.State}
		if !m.AppliedAt.IsZero() {
			at := m.AppliedAt.UTC()
			d.AppliedAt = &at
		}
		out = append(out, d)
	}
	return out
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return withoutSecrets(err.Error())
}
