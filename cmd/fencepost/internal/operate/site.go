package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
)

// Site is one namespace on its servers.
type Site struct {
	pool      *pgxpool.Pool
	redis     *lease.Inspector // nil in advisory mode
	namespace string
}

// NewSite returns the site of a namespace. Without clients its leases are advisory locks.
func NewSite(pool *pgxpool.Pool, clients []redis.UniversalClient, namespace string) (*Site, error) {
	s := &Site{pool: pool, namespace: namespace}
	if len(clients) == 0 {
		return s, nil
	}
	var err error
	s.redis, err = lease.NewInspector(clients, &lease.Options{Prefix: "fencepost:" + namespace, CounterIdle: counterIdle})
	return s, err
}

// full is the name of a resource in the fence.
func (s *Site) full(resource string) string { return s.namespace + ":" + resource }

// dbError interprets an error of a statement that reads fencepost's views.
func dbError(ctx context.Context, verb string, err error) error {
	if server, ok := pgerr.ServerError(err); ok && server.Code == pgerr.CodeInsufficientPrivilege {
		return fmt.Errorf("%w: %s: this role may not look: the owner of the schema grants that with "+
			"SELECT fencepost.grant_operator('role'): %w", pgerr.ErrUnavailable, verb, err)
	}
	return pgerr.NotMigrated(pgerr.Interpret(ctx, verb, err, false))
}

// ErrRefused marks what was not done although it could be.
var ErrRefused = errors.New("refused")
