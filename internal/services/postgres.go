package services

import "context"

// Postgres is a server of one's own, to be hurt. Its methods take turns and may be
// called from several goroutines.
type Postgres struct {
	host *hostProcess
	url  string
	// Description is the server for people, as in [Services].
	Description string
}

// StartPostgres starts a PostgreSQL with further arguments for postgres, such as "-c", "autovacuum=off". The order
// is that of [StartRedis]. Ctx bounds the start only. The caller must Close the result.
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

// URL returns its postgres:// address, the same for its whole life, with the right to do everything. It holds a
// password.
func (p *Postgres) URL() string { return p.url }

// Crash ends the server at once (PostgreSQL calls it an immediate shutdown): no client is told goodbye, what had not
// reached the disk is gone, and the next start begins with recovery.
func (p *Postgres) Crash(ctx context.Context) error { return p.order(ctx, opKill) }

// Shut ends the server in order: everything is kept.
func (p *Postgres) Shut(ctx context.Context) error { return p.order(ctx, opShut) }

// Start starts it again after Crash or Shut, on the same port, and returns once it answers.
func (p *Postgres) Start(ctx context.Context) error { return p.order(ctx, opStart) }

// Close stops the server and removes its data. A second call does nothing.
func (p *Postgres) Close() error { return p.host.close() }

func (p *Postgres) order(ctx context.Context, o op) error {
	_, err := p.host.call(ctx, request{Op: o})
	return err
}
