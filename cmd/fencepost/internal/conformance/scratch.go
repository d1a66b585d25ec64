package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// scratch is where the checks of PostgreSQL work: the library's own functions in a schema of another name, and a
// table beside it.
type scratch struct {
	config *pgx.ConnConfig
	watch  time.Duration
	edit   func(sql string) string
	schema string
	lock   string // the migration lock's number
	made   bool   // something may have to be removed
}

func newScratch(opts *Options) *scratch {
	return &scratch{
		config: opts.Postgres, watch: opts.Watch, edit: opts.edit,
		schema: "fencepost_check_" + strings.ToLower(rand.Text()[:12]), lock: strconv.Itoa(int(mathrand.Int32())),
	}
}

// app is the schema of the table, as if it were an application's.
func (s *scratch) app() string { return s.schema + "_app" }

// table is the table of the application.
func (s *scratch) table() fence.Table {
	return fence.Table{Schema: s.app(), Name: "account", Key: []string{"id"}}
}

// sql replaces the schema fencepost in a text by the scratch schema.
func (s *scratch) sql(text string) string {
	const migrationLock = "1179534157" // replaced, so that a running migrator or another run does not block this one
	text = strings.ReplaceAll(text, migrationLock, s.lock)
	return regexp.MustCompile(`\bfencepost\b`).ReplaceAllLiteralString(text, s.schema)
}

// makeTable makes the application's table.
func (s *scratch) makeTable(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	s.made = true
	for _, sql := range []string{
		`CREATE SCHEMA ` + s.schema,
		`CREATE SCHEMA ` + s.app(),
		`CREATE TABLE ` + s.table().String() +
			` (id text PRIMARY KEY, value text NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	} {
		if _, err := conn.Exec(ctx, s.edit(sql)); err != nil {
			return err
		}
	}
	return nil
}

// install runs the library's migrations in the scratch schema.
func (s *scratch) install(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	files := migrations.FS()
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range append([]string{"bootstrap.sql"}, names...) {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		// Several statements in one text, as in a simple query.
		up := s.sql(s.edit(upPart(string(text))))
		if _, err := conn.PgConn().Exec(ctx, "BEGIN;\n"+up+"\n;COMMIT").ReadAll(); err != nil {
			return fmt.Errorf("migration %s: %w", path.Base(name), err)
		}
	}
	return nil
}

// upPart returns the part of a migration that runs on the way up.
func upPart(text string) string {
	if _, after, found := strings.Cut(text, "-- +goose Up\n"); found {
		text = after
	}
	up, _, _ := strings.Cut(text, "-- +goose Down\n")
	return up
}

// remove drops what the checks created. It does not end with ctx, and has a time limit of its own.
func (s *scratch) remove(ctx context.Context) error {
	if !s.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkPatience)
	defer cancel()
	drop := `DROP SCHEMA IF EXISTS ` + s.app() + `, ` + s.schema + ` CASCADE`
	t := newTrial(s.config)
	defer t.end()
	conn, err := t.conn(ctx)
	if err == nil {
		_, err = conn.PgConn().Exec(ctx, drop).ReadAll()
	}
	if err != nil {
		return fmt.Errorf("not removed: %s: %w", drop, err)
	}
	return nil
}

// try makes a check from work that uses connections of its own.
func (s *scratch) try(work func(ctx context.Context, t *trial) error) func(ctx context.Context) (string, error) {
	return holds(func(ctx context.Context) error {
		t := newTrial(s.config)
		defer t.end()
		return work(ctx, t)
	})
}

// set puts one row into the table, with a token.
func (s *scratch) set(ctx context.Context, conn *pgx.Conn, id string, token int64) error {
	_, err := conn.Exec(ctx, `DELETE FROM `+s.table().String()+` WHERE id = $1`, id)
	if err == nil {
		_, err = conn.Exec(
			ctx,
			`INSERT INTO `+s.table().String()+` (id, value, last_fencing_token) VALUES ($1, 'first', $2)`,
			id,
			token,
		)
	}
	return err
}

// wantValue checks whether a row is as it should be.
func (s *scratch) wantValue(ctx context.Context, conn *pgx.Conn, id, want string) error {
	var value string
	err := conn.QueryRow(ctx, `SELECT value FROM `+s.table().String()+` WHERE id = $1`, id).Scan(&value)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		value = "no row"
	case err != nil:
		return err
	}
	if value != want {
		return fmt.Errorf("the row has %q, and should have %q", value, want)
	}
	return nil
}
