package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the "pgx" driver for migrations

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/migrations"
)

// adminPatience bounds one CREATE or DROP DATABASE.
const adminPatience = 2 * time.Minute

// adminConns is how many databases are made and dropped at the same time.
const adminConns = 4

// databasePrefix starts the name of every database made here:
// fencepost_test_<run>_<what>.
const databasePrefix = "fencepost_test_"

// postgresServer makes databases on the shared server.
//
// On a server named by address, databases of a killed run would stay forever. So each run holds an advisory lock, which
// dies with the run, and drops the databases of runs whose lock is free.
type postgresServer struct {
	url   string
	run   string        // this run's part of database names
	lock  *pgx.Conn     // holds the run's lock
	admin *pgxpool.Pool // to the server's first database; a new connection costs as much as a database
	// strategy is the last clause of CREATE DATABASE. Copying the template's files takes a third of the time of copying
	// its pages through the log, which is PostgreSQL's default from 15 on. But it needs checkpoints, and with fsync
	// those take longer.
	strategy string

	template     sync.Once
	templateName string
	templateErr  error
}

func openServer(ctx context.Context, s *services.Services) (*postgresServer, error) {
	conn, err := pgx.Connect(ctx, s.PostgresURL)
	if err != nil {
		return nil, err
	}
	p := &postgresServer{url: s.PostgresURL, run: randomName(), lock: conn}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", p.run); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	const choose = `SELECT CASE WHEN current_setting('fsync') = 'off'
			AND current_setting('server_version_num')::int >= 150000
		THEN ' STRATEGY file_copy' ELSE '' END`
	if err := errors.Join(conn.QueryRow(ctx, choose).Scan(&p.strategy), sweep(ctx, conn)); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	if p.admin, err = adminPool(ctx, p.url); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return p, nil
}

func adminPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = adminConns
	return pgxpool.NewWithConfig(ctx, config)
}

// sweep drops the databases of runs that have died.
func sweep(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", databasePrefix)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("listing databases: %w", err)
	}
	for _, name := range names {
		run, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
		var dead bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", run).Scan(&dead)
		if err != nil {
			return fmt.Errorf("looking for a run's lock: %w", err)
		}
		if !dead {
			continue
		}
		// Another run may sweep at the same time: only one has the lock now.
		err = dropDatabase(ctx, conn, name)
		_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", run)
		if err := errors.Join(err, unlockErr); err != nil {
			return fmt.Errorf("dropping the database of a dead run: %w", err)
		}
	}
	return nil
}

func (p *postgresServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	p.admin.Close()
	var err error
	if p.templateName != "" {
		err = dropDatabase(ctx, p.lock, p.templateName)
	}
	return errors.Join(err, p.lock.Close(ctx))
}

// create makes a database and returns its name. Template "" means an empty one.
func (p *postgresServer) create(ctx context.Context, template string) (string, error) {
	name := p.newName()
	if template == "" {
		template = "template0"
	}
	err := p.asAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template)+p.strategy)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("creating a database: %w", err)
	}
	return name, nil
}

// createEncoded makes a database in a given encoding, with fencepost's migrations in it.
func (p *postgresServer) createEncoded(ctx context.Context, encoding string) (string, error) {
	name := p.newName()
	err := p.asAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(
			ctx,
			"CREATE DATABASE "+quote(name)+" TEMPLATE template0 LOCALE 'C' ENCODING '"+encoding+"'"+p.strategy,
		)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("creating a database: %w", err)
	}
	return name, migrate(ctx, WithEncoding(p.urlOf(name), "UTF8"))
}

func (p *postgresServer) newName() string { return databasePrefix + p.run + "_" + randomName() }

func (p *postgresServer) drop(ctx context.Context, name string) error {
	return p.asAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return dropDatabase(ctx, conn, name)
	})
}

// keep renames a database so that no later run drops it.
func (p *postgresServer) keep(ctx context.Context, name string) (string, error) {
	kept := "fencepost_kept_" + strings.TrimPrefix(name, databasePrefix)
	return kept, p.asAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		// A database in use cannot be renamed, and PostgreSQL 13 does not wait for the sessions that it terminates.
		for {
			_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
			if err != nil {
				return err
			}
			_, err = conn.Exec(ctx, "ALTER DATABASE "+quote(name)+" RENAME TO "+quote(kept))
			if inUse := new(pgconn.PgError); !errors.As(err, &inUse) || inUse.Code != "55006" {
				return err
			}
		}
	})
}

// migrated returns the name of a database with fencepost's migrations in it, to be copied. It is made once per run and
// gets its name only after the migrations have succeeded.
func (p *postgresServer) migrated(ctx context.Context) (string, error) {
	p.template.Do(func() {
		name, err := p.create(ctx, "")
		if err != nil {
			p.templateErr = err
			return
		}
		p.templateName = name
		p.templateErr = migrate(ctx, p.urlOf(name))
	})
	return p.templateName, p.templateErr
}

func migrate(ctx context.Context, address string) error {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return errors.Join(fmt.Errorf("migrating the template database: %w", err), db.Close())
	}
	return db.Close()
}

// urlOf returns the server's address with another database in it.
func (p *postgresServer) urlOf(name string) string {
	u, err := url.Parse(p.url)
	if err != nil {
		panic("the address was good enough to connect") // Its text may hold a password.
	}
	u.Path = "/" + name
	return u.String()
}

// asAdmin runs fn on a connection to the server's first database.
func (p *postgresServer) asAdmin(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	return p.admin.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return fn(ctx, conn.Conn()) })
}

func dropDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// randomName is short, lower case and without separators.
func randomName() string { return strings.ToLower(rand.Text()[:12]) }
