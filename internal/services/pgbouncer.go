package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// PoolMode is a PgBouncer pool_mode.
type PoolMode string

// The modes that are of use here.
const (
	PoolSession     PoolMode = "session"
	PoolTransaction PoolMode = "transaction"
)

// PgBouncerOptions says how to pool. Nil means the defaults.
type PgBouncerOptions struct {
	// PoolMode defaults to transaction.
	PoolMode PoolMode
	// PoolSize is the number of server connections per database. Default 4.
	PoolSize int
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
	return d
}

func (o PgBouncerOptions) validate() error {
	if o.PoolMode != PoolSession && o.PoolMode != PoolTransaction {
		return fmt.Errorf("pool mode is %q; it may be session or transaction", string(o.PoolMode))
	}
	if o.PoolSize < 1 {
		return fmt.Errorf("pool size is %d; it must be above 0", o.PoolSize)
	}
	return nil
}

// PgBouncer is a pooler in front of a PostgreSQL server.
type PgBouncer struct {
	host *hostProcess
	url  string
}

// bouncerConfig is what the host needs to know.
type bouncerConfig struct {
	PgBouncerOptions
	Host           string
	Port           uint16
	User, Password string
	Database       string
	Query          string // of the address: further parameters
}

// StartPgBouncer starts the installed pgbouncer in front of the server that dsn
// names, a postgres:// address. Every database of that server can be reached
// through it, as dsn's user. Ctx bounds the start only. The caller must Close the
// result.
func StartPgBouncer(ctx context.Context, dsn string, opts *PgBouncerOptions) (*PgBouncer, error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	// Errors of the parsers quote the address.
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("not a PostgreSQL address")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("not a postgres:// address")
	}
	h, a, err := startHost(ctx, request{Op: opPgBouncer, Bouncer: &bouncerConfig{
		PgBouncerOptions: o,
		Host:             c.Host, Port: c.Port, User: c.User, Password: c.Password, Database: c.Database,
		Query: u.RawQuery,
	}})
	if err != nil {
		return nil, err
	}
	return &PgBouncer{host: h, url: a.BouncerURL}, nil
}

// URL returns dsn as it reads through the pooler. It may hold a password.
func (p *PgBouncer) URL() string { return p.url }

// Close stops the pooler. A second call does nothing.
func (p *PgBouncer) Close() error { return p.host.close() }
