package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/sqlfiles"
	"github.com/fencepost-pg/fencepost/migrations"
)

// protectCommand protects tables of the application's: by files for its migrations, at once, or not at all if it only
// looks.
type protectCommand struct {
	Tables     []string       `arg:"" name:"table" help:"A table, as schema.table=RESOURCE. RESOURCE names the resource of a row: invoice:{id}, or one name for all rows. The level column takes none."`
	Level      sqlfiles.Level `required:"" enum:"column,rule,observe,enforce" help:"column: the token column. rule: also the resource, as a comment. observe: triggers that log. enforce: triggers that refuse."`
	Column     string         `default:"last_fencing_token" placeholder:"NAME" help:"The token column (default: ${default})."`
	Replicated bool           `help:"Let the triggers refuse also what logical replication applies."`
	fileFlags
	Apply bool `help:"Protect the tables at once, instead of writing files."`
	Check bool `help:"Compare the tables with what is declared here, and end with exit status 1 if one differs."`
	namespaceFlags
	migrateFlags

	declared []sqlfiles.Declaration
}

// Help is printed below the flags.
func (*protectCommand) Help() string {
	return `Without --apply and --check it writes migrations, up and down, for the tool that migrates your tables, and ` +
		`leaves out what the folder has. fencepost's own migrations come first: "fencepost migrate up", or "fencepost ` +
		`migrate sql".

Examples:

  fencepost protect --level column --format goose --dir db/migrations shop.invoice
  fencepost protect --level observe --format goose --dir db/migrations --namespace billing 'shop.invoice=invoice:{id}'
  fencepost protect --level enforce --format goose --dir db/migrations --namespace billing 'shop.invoice=invoice:{id}'
  fencepost protect --level enforce --check --namespace billing 'shop.invoice=invoice:{id}' 'shop.rate=rates'
  fencepost protect --level enforce --apply --namespace billing 'shop.line=invoice:{tenant}/{invoice}'`
}

// Validate reads the declarations. Only --apply and --check need a database.
func (c *protectCommand) Validate() error {
	switch {
	case c.Level == "":
		return nil // kong says so
	case c.Apply && c.Check, c.Dir != "" && (c.Apply || c.Check):
		return errors.New("--apply, --check and --dir exclude each other")
	case c.Apply || c.Check:
		if err := c.databaseFlags.Validate(); err != nil {
			return err
		}
	}
	c.declared = nil
	for _, text := range c.Tables {
		d, err := sqlfiles.Declare(text, c.Level, migrations.Protection{
			Table: migrations.Table{Column: c.Column}, Namespace: c.Namespace, Replicated: c.Replicated,
		})
		if err != nil {
			return err
		}
		d.Protection.Mode = d.Mode()
		same := func(other sqlfiles.Declaration) bool { return other.Quoted() == d.Quoted() }
		if slices.ContainsFunc(c.declared, same) {
			return fmt.Errorf("%s stands here twice", d.Quoted())
		}
		c.declared = append(c.declared, d)
	}
	return nil
}

// Run writes files, protects, or looks.
func (c *protectCommand) Run(ctx context.Context, std *streams) error {
	switch {
	case c.Check:
		return c.withDatabase(func(db *sql.DB) error { return c.check(ctx, std, db) })
	case c.Apply:
		return c.withDatabase(func(db *sql.DB) error { return c.apply(ctx, std, db) })
	}
	folder := sqlfiles.EmptyFolder(c.Format)
	if c.Dir != "" {
		var err error
		if folder, err = sqlfiles.OpenFolder(c.Dir, c.Format); err != nil {
			return err
		}
	}
	var steps []sqlfiles.Step
	for i := range c.declared {
		steps = append(steps, c.declared[i].Steps(folder)...)
	}
	if c.Dir != "" {
		return c.write(std, folder, steps, c.JSON)
	}
	return c.print(std, steps, sqlfiles.Up, c.JSON)
}

// apply protects the tables one by one, so that no two of them are locked together.
func (c *protectCommand) apply(ctx context.Context, std *streams, db *sql.DB) error {
	done := []string{}
	var err error
	for i := range c.declared {
		if err = applyTo(ctx, db, &c.declared[i]); err != nil {
			break
		}
		done = append(done, c.declared[i].Quoted())
	}
	if c.JSON {
		return errors.Join(err, std.printJSON(struct {
			Protected []string       `json:"protected"`
			Level     sqlfiles.Level `json:"level"`
			Error     string         `json:"error,omitempty"`
		}{done, c.Level, errorText(err)}))
	}
	return errors.Join(err, std.printLines(string(c.Level), done))
}

// applyTo runs the library's own migrations of a table, without a record: they find out what is there. Each waits for
// the table as in migrations.Up.
func applyTo(ctx context.Context, db *sql.DB, d *sqlfiles.Declaration) error {
	column, err := migrations.TokenColumn(migrations.FirstAlso, d.Table)
	if err != nil {
		return err
	}
	steps := []func(context.Context, *sql.Tx) error{column.UpFnContext}
	switch d.Level {
	case sqlfiles.Rule:
		steps = append(steps, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, d.CommentSQL())
			return err
		})
	case sqlfiles.Observe, sqlfiles.Enforce:
		protect, err := migrations.Protect(migrations.FirstAlso, d.Protection)
		if err != nil {
			return err
		}
		steps = append(steps, protect.UpFnContext)
	}
	for _, step := range steps {
		if err := inTx(ctx, db, step); err != nil {
			return fmt.Errorf("%s: %w", d.Quoted(), err)
		}
	}
	return nil
}

func inTx(ctx context.Context, db *sql.DB, fn func(context.Context, *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// check prints what differs, one line each, and ends with an error if something does.
func (c *protectCommand) check(ctx context.Context, std *streams, db *sql.DB) error {
	differences := []difference{}
	for i := range c.declared {
		list, err := differencesOf(ctx, db, &c.declared[i])
		if err != nil {
			return fmt.Errorf("%s: %w", c.declared[i].Quoted(), err)
		}
		differences = append(differences, list...)
	}
	var err error
	if n := len(differences); n > 0 {
		err = fmt.Errorf("not as declared: %s", strings.Join(tablesOf(differences), ", "))
	}
	if c.JSON {
		return errors.Join(err, std.printJSON(struct {
			Problems []difference `json:"problems"`
		}{differences}))
	}
	for _, d := range differences {
		err = errors.Join(err, std.printf("%s: %s\n", d.Table, d.Problem))
	}
	return err
}

// tablesOf returns each table once.
func tablesOf(differences []difference) []string {
	var names []string
	for _, d := range differences {
		names = append(names, d.Table)
	}
	return slices.Compact(names)
}
