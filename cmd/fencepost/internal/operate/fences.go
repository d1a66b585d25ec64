package operate

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/token"
)

// Fence is what PostgreSQL says about a resource.
type Fence struct {
	Resource  string      `json:"resource"` // without the namespace
	Token     token.Token `json:"token"`
	Label     string      `json:"label"`
	ClaimedAt time.Time   `json:"claimed_at"`
}

const fenceColumns = `SELECT resource, token, label, claimed_at FROM fencepost.fences `

// Fences returns up to limit fences of the namespace, in the order of their names, that come after a name. more says
// that there are others.
func (s *Site) Fences(ctx context.Context, after string, limit int) (fences []Fence, more bool, err error) {
	// A namespace has no colon, and ";" is the character after it.
	rows, err := s.pool.Query(ctx, fenceColumns+`WHERE resource COLLATE "C" > $1 AND resource COLLATE "C" < $2
		ORDER BY resource COLLATE "C" LIMIT $3`, s.full(after), s.namespace+";", limit+1)
	if fences, err = s.collect(rows, err); err != nil {
		return nil, false, dbError(ctx, "list fences", err)
	}
	if len(fences) > limit {
		return fences[:limit], true, nil
	}
	return fences, false, nil
}

// fencesOf returns the fences of resources, by resource.
func (s *Site) fencesOf(ctx context.Context, resources ...string) (map[string]Fence, error) {
	full := make([]string, len(resources))
	for i, r := range resources {
		full[i] = s.full(r)
	}
	rows, err := s.pool.Query(ctx, fenceColumns+`WHERE resource COLLATE "C" = ANY($1::text[])`, full)
	list, err := s.collect(rows, err)
	if err != nil {
		return nil, dbError(ctx, "look at fences", err)
	}
	fences := make(map[string]Fence, len(list))
	for _, f := range list {
		fences[f.Resource] = f
	}
	return fences, nil
}

func (s *Site) collect(rows pgx.Rows, err error) ([]Fence, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Fence, err error) {
		err = row.Scan(&f.Resource, (*int64)(&f.Token), &f.Label, &f.ClaimedAt)
		f.Resource = strings.TrimPrefix(f.Resource, s.namespace+":")
		f.ClaimedAt = f.ClaimedAt.UTC()
		return f, err
	})
}

// Work is a transaction that has passed the gate of a resource, or waits at it.
type Work struct {
	PID         int        `json:"pid"`
	Does        string     `json:"does"` // see the constants
	Application string     `json:"application,omitempty"`
	User        string     `json:"user,omitempty"`
	Client      string     `json:"client,omitempty"`
	State       string     `json:"state,omitempty"` // as PostgreSQL says: active, idle in transaction
	Since       *time.Time `json:"since,omitempty"` // the transaction's begin
	Query       string     `json:"query,omitempty"` // its last, unless this role may not see it
}

// What a transaction does at the gate.
const (
	Writes = "writes"         // it has entered: no claim commits before it has ended
	Claims = "claims"         // it makes the claim, and may write as well
	Waits  = "waits to claim" // or to write
)

// openWork returns the open transactions of a resource. Behind its gate may be those of another resource whose name
// has the same hash, which is rare.
func (s *Site) openWork(ctx context.Context, resource string) ([]Work, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT a.pid, CASE WHEN NOT l.granted THEN $2 WHEN l.mode = 'ShareLock' THEN $3 ELSE $4 END,
		       coalesce(a.application_name, ''), coalesce(a.usename::text, ''), coalesce(a.client_addr::text, ''),
		       coalesce(a.state, ''), a.xact_start, left(coalesce(a.query, ''), 500)
		  FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
		 WHERE l.locktype = 'advisory' AND l.classid = 1179534160 AND l.objsubid = 2
		   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
		   AND l.objid = (hashtext($1::text COLLATE "C")::bigint & 4294967295)::oid
		 ORDER BY l.granted DESC, a.xact_start, a.pid`, s.full(resource), Waits, Writes, Claims)
	if err != nil {
		return nil, dbError(ctx, "look at open transactions", err)
	}
	work, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Work, err error) {
		err = row.Scan(&w.PID, &w.Does, &w.Application, &w.User, &w.Client, &w.State, &w.Since, &w.Query)
		w.Query = WithoutNonces(strings.Join(strings.Fields(w.Query), " "))
		return w, err
	})
	return work, dbError(ctx, "look at open transactions", err)
}
