package compare

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/migrations"
)

// databases makes a database for each cell, on one server. It is safe for concurrent use.
type databases struct {
	admin    *pgxpool.Pool
	url      *url.URL
	prefix   string // of their names; that of the template itself
	numbered atomic.Int64
}

// openDatabases makes the template of the cells' databases, with fencepost's migrations and the tables of package work.
// The caller must call close.
func openDatabases(ctx context.Context, address string) (*databases, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("PostgreSQL has no address with a host, which relays need") // the cause quotes it
	}
	admin, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, errors.New("the PostgreSQL address is not valid") // as above
	}
	d := &databases{admin: admin, url: u, prefix: "fencepost_compare_" + strings.ToLower(rand.Text()[:12])}
	if err := d.makeTemplate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make the database that cells are copied from: %w", err), d.close(ctx))
	}
	return d, nil
}

func (d *databases) makeTemplate(ctx context.Context) error {
	if err := d.run(ctx, "CREATE DATABASE "+quote(d.prefix)+" TEMPLATE template0"); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, d.address(d.prefix))
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	_, err = migrations.Up(ctx, db, nil)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return work.CreateTables(ctx, pool)
}

// address returns the address of a database on the server.
func (d *databases) address(name string) string {
	u := *d.url
	u.Path = "/" + name
	return u.String()
}

// create makes a database for a cell and returns its name. The caller must call drop, also after an error.
func (d *databases) create(ctx context.Context) (name string, err error) {
	name = fmt.Sprintf("%s_%d", d.prefix, d.numbered.Add(1))
	if err := d.run(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(d.prefix)); err != nil {
		return name, fmt.Errorf("create a database: %w", err)
	}
	return name, nil
}

// drop removes a database, even if sessions are connected to it. If the database does not exist, it does nothing.
func (d *databases) drop(ctx context.Context, name string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := d.run(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (d *databases) close(ctx context.Context) error {
	err := d.drop(ctx, d.prefix)
	d.admin.Close()
	return err
}

// run runs one statement without interruption. The server might carry out an interrupted one after the caller has
// removed what it makes.
func (d *databases) run(ctx context.Context, statement string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := d.admin.Exec(ctx, statement)
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
