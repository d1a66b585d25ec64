package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
	"github.com/fencepost-pg/fencepost/migrations"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Apply what is pending. Safe to run any number of times at once, and behind PgBouncer."`
	Down   migrateDown   `cmd:"" help:"Take everything down again. Refuses while a table carries tokens."`
	Status migrateStatus `cmd:"" help:"Show what is applied, what is pending, and what up would repair. Changes nothing."`
	SQL    migrateSQL    `cmd:"" name:"sql" help:"Print or write the migrations as SQL, for another tool."`
}

// migrateFlags are the flags that all three commands have.
type migrateFlags struct {
	databaseFlags
	JSON bool `name:"json" help:"Print one JSON object."`
}

type migrateUp struct {
	migrateFlags
}

type migrateDown struct {
	migrateFlags
	Yes   bool `help:"Needed: yes, drop fencepost's table and functions."`
	Force bool `help:"Drop them although they remember tokens. Workers still running, however stale, can write afterwards."`
}

// Help has an example.
func (*migrateUp) Help() string {
	return `Run it as the role that owns the schema, or will. With nothing pending it takes no lock, and repairs ` +
		`rights that are missing or too wide.

Example:

  fencepost migrate up --database "$DATABASE_URL"`
}

// Help has an example.
func (*migrateDown) Help() string {
	return `The tokens that the fences remember are lost with them, so workers that are still running, however ` +
		`stale, could write afterwards: stop them first.

Example:

  fencepost migrate down --yes`
}

// Help says how a script reads it.
func (*migrateStatus) Help() string {
	return `Exit status 3: migrations are pending. The role of an application may ask, so a pod can wait for a job ` +
		`that migrates.

Example:

  until fencepost migrate status; do sleep 2; done`
}

// Validate requires --yes.
func (c *migrateDown) Validate() error {
	if err := c.migrateFlags.Validate(); err != nil {
		return err
	}
	if !c.Yes {
		return errors.New("it drops fencepost's tables and functions: add --yes")
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

// Run applies pending migrations and repairs problems.
func (c *migrateUp) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		problems, err := migrations.Problems(ctx, db)
		if err != nil {
			err = fmt.Errorf("migrate up: %w", err)
		}
		var applied []migrations.Migration
		var repaired []string
		if err == nil {
			applied, err = migrations.Up(ctx, db, nil)
		}
		if err == nil {
			repaired = problems
		}
		result := struct {
			Applied  []migration `json:"applied"`
			Repaired []string    `json:"repaired,omitempty"`
			Error    string      `json:"error,omitempty"`
		}{describe(applied), repaired, errorText(err)}
		if c.JSON {
			return errors.Join(err, std.printJSON(result))
		}
		none := "nothing to apply"
		if len(repaired) > 0 {
			none = ""
		}
		return errors.Join(err, std.printMigrations(applied, err, none), std.printLines("repaired", repaired))
	})
}

// Run takes all migrations down.
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

// Run shows the state of every migration.
func (c *migrateStatus) Run(ctx context.Context, std *streams) error {
	return c.withDatabase(func(db *sql.DB) error {
		all, err := migrations.Status(ctx, db, nil)
		if err != nil {
			return err
		}
		problems, err := migrations.Problems(ctx, db) // may fail if the schema is incomplete, as the list then shows
		if slices.ContainsFunc(all, func(m migrations.Migration) bool { return m.State == migrations.Pending }) {
			err = errors.Join(err, &statusError{status: exitPending})
		}
		if c.JSON {
			return errors.Join(err, std.printJSON(struct {
				Migrations []migration `json:"migrations"`
				Problems   []string    `json:"problems,omitempty"`
			}{describe(all), problems}))
		}
		return errors.Join(err, std.printMigrations(all, nil, "no migrations"), std.printLines("problem", problems))
	})
}

// withDatabase opens the database for fn. It does not connect by itself.
func (f *migrateFlags) withDatabase(fn func(db *sql.DB) error) (err error) {
	config, err := servers.PostgresConfig(f.Database)
	if err != nil {
		return fmt.Errorf("--database is %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer func() {
		if closeErr := db.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the database: %w", closeErr))
		}
	}()
	return explained(fn(db))
}

// printMigrations writes one line per migration. If the list is empty after an error, it writes nothing.
func (s *streams) printMigrations(list []migrations.Migration, err error, none string) error {
	if len(list) == 0 && err == nil && none != "" {
		return s.printf("%s\n", none)
	}
	for _, m := range list {
		at := ""
		if !m.AppliedAt.IsZero() {
			at = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		if err := s.printf("%-8s %-24s %s\n", m.State, m.Name, at); err != nil {
			return err
		}
	}
	return nil
}

// printLines writes one line per text, in the columns of printMigrations.
func (s *streams) printLines(what string, texts []string) error {
	for _, text := range texts {
		if err := s.printf("%-8s %s\n", what, text); err != nil {
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
