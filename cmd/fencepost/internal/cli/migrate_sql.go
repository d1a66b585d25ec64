package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/sqlfiles"
)

// migrateSQL prints or writes fencepost's own migrations as SQL. It needs no database.
type migrateSQL struct {
	From int64 `placeholder:"N" help:"The first migration. Default: the first that there is."`
	To   int64 `placeholder:"M" help:"The last migration. Default: the last that there is."`
	Down bool  `help:"Print the way down instead. The files of --dir have both ways."`
	fileFlags
	JSON bool `name:"json" help:"Print one JSON object with the files."`
}

// Help is printed below the flags.
func (*migrateSQL) Help() string {
	return `Another tool can run what this prints, and "fencepost migrate up" and "status" then know it as applied. ` +
		`Files that run in a database that "migrate up" has migrated do nothing.

Examples:

  fencepost migrate sql | psql "$DATABASE_URL" -v ON_ERROR_STOP=1
  fencepost migrate sql --format goose --dir db/migrations
  fencepost migrate sql --format golang-migrate --dir db/migrations --from 3
  fencepost migrate sql --down --from 5`
}

// fileFlags say for which tool files are, and where.
type fileFlags struct {
	Format sqlfiles.Format `enum:"plain,goose,golang-migrate,flyway,atlas,dbmate" default:"plain" help:"The tool that runs the SQL: ${enum}."`
	Dir    string          `placeholder:"DIR" help:"Write files here, numbered after those that are there. What is there already is left out."`
}

// Validate refuses what has no files.
func (c *migrateSQL) Validate() error {
	switch {
	case c.Down && c.Dir != "":
		return errors.New("--dir writes both ways: leave out --down")
	case c.Down && c.Format == sqlfiles.Atlas:
		return errors.New("atlas has no files for the way down: print it with --format plain")
	case c.From < 0 || c.To < 0 || c.To != 0 && c.To < c.From:
		return fmt.Errorf("there is no migration from %d to %d", c.From, c.To)
	}
	return nil
}

// Run prints or writes the migrations.
func (c *migrateSQL) Run(_ context.Context, std *streams) error {
	all, err := sqlfiles.Own()
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	steps := sqlfiles.Between(all, c.From, c.To)
	if len(steps) == 0 {
		return fmt.Errorf("there is no migration from %d on: the last is %d", c.From, all[len(all)-1].Version)
	}
	if c.Dir != "" {
		folder, err := sqlfiles.OpenFolder(c.Dir, c.Format)
		if err != nil {
			return err
		}
		return c.write(std, folder, folder.Missing(steps), c.JSON)
	}
	direction := sqlfiles.Up
	if c.Down {
		direction = sqlfiles.Down
		slices.Reverse(steps)
	}
	return c.print(std, steps, direction, c.JSON)
}

// sqlFile is a file in the JSON output.
type sqlFile struct {
	Name      string             `json:"name"`
	Direction sqlfiles.Direction `json:"direction"`
	SQL       string             `json:"sql,omitempty"`
}

// print prints the files of one direction, and those that have both.
func (f *fileFlags) print(std *streams, steps []sqlfiles.Step, direction sqlfiles.Direction, asJSON bool) error {
	list := []sqlFile{}
	for _, file := range sqlfiles.EmptyFolder(f.Format).Number(steps, time.Now()) {
		if file.Direction != direction && file.Direction != sqlfiles.Both {
			continue
		}
		list = append(list, sqlFile{file.Name, file.Direction, file.Text})
	}
	if asJSON {
		return std.printJSON(struct {
			Files []sqlFile `json:"files"`
		}{list})
	}
	for i, file := range list {
		if i > 0 {
			if err := std.printf("\n"); err != nil {
				return err
			}
		}
		if err := std.printf("-- %s\n%s", file.Name, file.SQL); err != nil {
			return err
		}
	}
	return nil
}

// write writes the files of steps that are missing in the folder, and prints their paths.
func (f *fileFlags) write(std *streams, folder *sqlfiles.Folder, missing []sqlfiles.Step, asJSON bool) error {
	paths, err := folder.Write(folder.Number(missing, time.Now()))
	if asJSON {
		if paths == nil {
			paths = []string{}
		}
		return errors.Join(err, std.printJSON(struct {
			Written []string `json:"written"`
			Error   string   `json:"error,omitempty"`
		}{paths, errorText(err)}))
	}
	for _, path := range paths {
		err = errors.Join(err, std.printf("%s\n", path))
	}
	if len(missing) == 0 && err == nil {
		err = std.printf("nothing to write: all of it is in %s\n", f.Dir)
	}
	return err
}
