package services

import (
	"context"
	"errors"
)

// PostgresPair is a PostgreSQL primary and its streaming standby. The caller decides when to promote the standby, by
// SELECT pg_promote() on it.
type PostgresPair struct {
	host *hostProcess
	// Primary and Standby are the roles at the start.
	Primary, Standby *PostgresNode
	// Description describes the servers for people, as in [Services].
	Description string
}

// PostgresNode is one server of a pair.
type PostgresNode struct {
	pair   *PostgresPair
	number int
	url    string
}

// StartPostgresPair starts a primary and a standby from the installed programs, with additional arguments for both.
// Like [StartCluster] it uses no containers. It returns once the standby answers. Ctx bounds the start only. The caller
// must Close the result.
//
// Errors: [ErrNotInstalled] if PostgreSQL is not installed.
func StartPostgresPair(ctx context.Context, args ...string) (*PostgresPair, error) {
	if _, err := findPostgres(); err != nil {
		return nil, errors.Join(ErrNotInstalled, err)
	}
	h, a, err := startHost(ctx, request{Op: opPostgresPair, Args: args})
	if err != nil {
		return nil, err
	}
	p := &PostgresPair{host: h, Description: a.Postgres}
	p.Primary, p.Standby = &PostgresNode{p, 0, a.NodeURLs[0]}, &PostgresNode{p, 1, a.NodeURLs[1]}
	return p, nil
}

// Close stops both servers and removes their data. A second call does nothing.
func (p *PostgresPair) Close() error { return p.host.close() }

// URL returns its postgres:// address, which never changes. It contains a password.
func (n *PostgresNode) URL() string { return n.url }

// Shut ends the server in order.
func (n *PostgresNode) Shut(ctx context.Context) error { return n.order(ctx, opShut) }

// Follow restarts it after Shut as a standby of the other server, which must have been promoted since. It returns once
// it answers.
func (n *PostgresNode) Follow(ctx context.Context) error { return n.order(ctx, opFollow) }

func (n *PostgresNode) order(ctx context.Context, o op) error {
	_, err := n.pair.host.call(ctx, request{Op: o, Node: n.number})
	return err
}
