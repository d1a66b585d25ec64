package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"

	"github.com/jackc/pgx/v5"
)

// PoolMode is a PgBouncer pool_mode.
type PoolMode string

// The modes that tests use.
const (
	PoolSession     PoolMode = "session"
	PoolTransaction PoolMode = "transaction"
)

// PgBouncerOptions configures pooling. Nil means the defaults.
type PgBouncerOptions struct {
	// PoolMode defaults to transaction.
	PoolMode PoolMode
	// PoolSize is the number of server connections per database. Default 4.
	PoolSize int
	// Statements is how many named statements PgBouncer tracks (max_prepared_statements). Default 0: none. It has no
	// effect if [PgBouncer.KeepStatements] is false.
	Statements int
}

func (o *PgBouncerOptions) withDefaults() PgBouncerOptions {
	d := PgBouncerOptions{PoolMode: PoolTransaction, PoolSize: 4}
	if o == nil {
		return d
	}
	if o.PoolMode != "" {
		d.PoolMode = o.PoolMode
	}
	if o.PoolSize != 0 {
		d.PoolSize = o.PoolSize
	}
	d.Statements = o.Statements
	return d
}

func (o PgBouncerOptions) validate() error {
	if o.PoolMode != PoolSession && o.PoolMode != PoolTransaction {
		return fmt.Errorf("pool mode is %q; it may be session or transaction", string(o.PoolMode))
	}
	if o.PoolSize < 1 {
		return fmt.Errorf("pool size is %d; it must be above 0", o.PoolSize)
	}
	if o.Statements < 0 {
		return fmt.Errorf("%d statements; it must be 0 or more", o.Statements)
	}
	return nil
}

// PgBouncer is a pooler in front of a PostgreSQL server.
type PgBouncer struct {
	front
	keeps bool
}

// KeepStatements reports whether this PgBouncer can track named statements, as it can from 1.21 on.
func (p *PgBouncer) KeepStatements() bool { return p.keeps }

// bouncerConfig is the configuration for the host.
type bouncerConfig struct {
	PgBouncerOptions
	login
	Host  string
	Port  uint16
	Keeps bool // it knows the setting max_prepared_statements
}

// StartPgBouncer starts the installed pgbouncer in front of the server that dsn, a postgres:// address, names. Every
// database of that server can be reached through it, as dsn's user. Ctx bounds the start only. The caller must Close
// the result.
//
// Errors: [ErrNotInstalled] if pgbouncer is not installed.
func StartPgBouncer(ctx context.Context, dsn string, opts *PgBouncerOptions) (*PgBouncer, error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	program, err := findServer("pgbouncer")
	if err != nil {
		return nil, errors.Join(ErrNotInstalled, err)
	}
	keeps, err := keepsStatements(ctx, program)
	if err != nil {
		return nil, err
	}
	// The parsers' errors quote the address.
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("not a PostgreSQL address")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("not a postgres:// address")
	}
	f, err := startFront(ctx, request{Op: opPgBouncer, Bouncer: &bouncerConfig{
		PgBouncerOptions: o,
		login:            login{User: c.User, Password: c.Password, Database: c.Database, Query: u.RawQuery},
		Host:             c.Host, Port: c.Port, Keeps: keeps,
	}})
	if err != nil {
		return nil, err
	}
	return &PgBouncer{f, keeps}, nil
}

// keepsStatements asks a program for its version.
func keepsStatements(ctx context.Context, program string) (bool, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("ask pgbouncer for its version: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("pgbouncer's version is %q: %w", out, err)
	}
	return major > 1 || minor >= 21, nil
}
