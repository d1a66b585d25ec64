package services

import "context"

// Postgres is a test's own server, to be crashed or stopped. Its methods take turns and may be called from several
// goroutines.
type Postgres struct {
	host *hostProcess
	url  string
	// Description describes the server for people, as in [Services].
	Description string
}

// StartPostgres starts a PostgreSQL with additional arguments for postgres, such as "-c", "autovacuum=off". It tries
// the ways in the order of [StartRedis]. Ctx bounds the start only. The caller must Close the result.
func StartPostgres(ctx context.Context, args ...string) (*Postgres, error) {
	var p *Postgres
	_, err := eachWay(ctx, ownOrder, func(w Way) error {
		h, a, err := startHost(ctx, request{Op: opPostgres, Way: w, Args: args})
		if err != nil {
			return err
		}
		p = &Postgres{host: h, url: a.PostgresURL, Description: a.Postgres}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// URL returns its postgres:// address, which never changes. Its role may do everything. It contains a password.
func (p *Postgres) URL() string { return p.url }

// Crash ends the server at once (PostgreSQL's immediate shutdown). Clients get no notice, data that had not reached the
// disk is lost, and the next start begins with recovery.
func (p *Postgres) Crash(ctx context.Context) error { return p.order(ctx, opKill) }

// Shut ends the server in order: everything is kept.
func (p *Postgres) Shut(ctx context.Context) error { return p.order(ctx, opShut) }

// Start restarts it after Crash or Shut, on the same port, and returns once it answers.
func (p *Postgres) Start(ctx context.Context) error { return p.order(ctx, opStart) }

// Close stops the server and removes its data. A second call does nothing.
func (p *Postgres) Close() error { return p.host.close() }

func (p *Postgres) order(ctx context.Context, o op) error {
	_, err := p.host.call(ctx, request{Op: o})
	return err
}
