package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/migrations"
	"github.com/fencepost-pg/fencepost/token"
)

// adminPatience bounds statements that create or remove a stage, which must not be interrupted.
const adminPatience = 30 * time.Second

// stage is where one play takes place: a database and a namespace of its own, both under one name.
type stage struct {
	name     string
	server   *pgx.ConnConfig
	redisURL string
	created  bool      // there is a database to drop, or there may be
	conn     *pgx.Conn // to the play's database; nil before it is ready
}

func newStage(o Options, kind Kind) (*stage, error) {
	server, err := pgx.ParseConfig(o.PostgresURL)
	if err != nil {
		return nil, errors.New("the PostgreSQL address is not valid") // the cause quotes it
	}
	return &stage{name: fmt.Sprintf("fencepost_demo_%s_%s", o.Name, kind), server: server, redisURL: o.RedisURL}, nil
}

// build creates the database and its contents. Whatever build returns, the caller must call strike.
func (s *stage) build(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	// If it were interrupted, the server might still create the database after strike has run.
	s.created = true
	err := s.admin(ctx, "CREATE DATABASE "+s.database()+" TEMPLATE template0")
	if err != nil {
		s.created = !isRefusal(err)
		return fmt.Errorf("create a database: %w", err)
	}
	config := s.server.Copy()
	config.Database = s.name
	db := stdlib.OpenDB(*config)
	_, err = migrations.Up(ctx, db, nil)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return fmt.Errorf("connect to the play's database: %w", err)
	}
	return s.furnish(ctx)
}

// isRefusal reports whether it is certain that a statement was not carried out.
func isRefusal(err error) bool {
	var unreachable *pgconn.ConnectError
	var server *pgconn.PgError
	return errors.As(err, &unreachable) || errors.As(err, &server)
}

func (s *stage) database() string { return pgx.Identifier{s.name}.Sanitize() }

func (s *stage) furnish(ctx context.Context) error {
	for _, statement := range []string{
		`CREATE SCHEMA app`,
		`CREATE TABLE app.invoice (
			id text PRIMARY KEY,
			value text NOT NULL,
			last_fencing_token bigint NOT NULL DEFAULT 0)`,
	} {
		if _, err := s.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("create the table of invoices: %w", err)
		}
	}
	if _, err := s.conn.Exec(
		ctx,
		`INSERT INTO app.invoice (id, value) VALUES ($1, $2)`,
		invoiceID,
		openValue,
	); err != nil {
		return fmt.Errorf("write the invoice: %w", err)
	}
	return nil
}

// look reads the row and the fence against which every guarded write is checked.
func (s *stage) look(ctx context.Context) (row Row, fence token.Token, err error) {
	const query = `
		SELECT value, last_fencing_token, coalesce((SELECT max(token) FROM fencepost.fence), 0)
		FROM app.invoice WHERE id = $1`
	if err := s.conn.QueryRow(ctx, query, invoiceID).Scan(&row.Value, &row.Token, &fence); err != nil {
		return Row{}, 0, fmt.Errorf("look at the row: %w", err)
	}
	return row, fence, nil
}

// strike removes the database and the keys. It runs on a context of its own, so that an interrupted play leaves nothing
// behind either.
func (s *stage) strike(ctx context.Context) error {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminPatience)
	defer cancel()
	var dropped, deleted error
	if s.conn != nil {
		_ = s.conn.Close(detached) // an error leaves it closed as well
		deleted = s.deleteKeys(detached)
	}
	if s.created {
		// The server may still count a killed worker as connected.
		dropped = s.admin(ctx, "DROP DATABASE IF EXISTS "+s.database()+" WITH (FORCE)")
	}
	if dropped != nil {
		dropped = fmt.Errorf("drop database %s: %w", s.name, dropped)
	}
	if deleted != nil {
		deleted = fmt.Errorf("delete the keys of namespace %s: %w", s.name, deleted)
	}
	return errors.Join(dropped, deleted)
}

// admin runs one statement in the server's first database. Only its own time limit can interrupt it.
func (s *stage) admin(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.server)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (s *stage) deleteKeys(ctx context.Context) error {
	address, err := redis.ParseURL(s.redisURL)
	if err != nil {
		return errors.New("the Redis address is not valid")
	}
	client := redis.NewClient(address)
	defer func() { _ = client.Close() }() // nothing is left to be lost
	keys := client.Scan(ctx, 0, "fencepost:"+s.name+":*", 10_000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
