package operate

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Lease is what Redis says about a resource, or what the advisory lock says.
type Lease struct {
	Standing lease.Standing `json:"standing"`
	Label    string         `json:"label,omitempty"`
	Token    token.Token    `json:"token,omitempty"`
	LeftMS   int64          `json:"left_ms,omitempty"`
	Waiting  int            `json:"waiting"`
	Counter  token.Token    `json:"counter,omitempty"`
	PID      int            `json:"pid,omitempty"`   // of the session that has the advisory lock
	Since    *time.Time     `json:"since,omitempty"` // when that session began
}

// Left is how much longer the lease lasts without another renewal.
func (l Lease) Left() time.Duration { return time.Duration(l.LeftMS) * time.Millisecond }

// Sight is what both servers say about a resource.
type Sight struct {
	Resource string `json:"resource"`
	Lease    Lease  `json:"lease"`
	Fence    *Fence `json:"fence"`          // nil if nobody has claimed, or it was collected
	Open     []Work `json:"open,omitempty"` // unless only a list was asked for

	redis lease.Sight
}

// Look returns what both servers say about a resource, with its open transactions.
func (s *Site) Look(ctx context.Context, resource string) (*Sight, error) {
	sights, err := s.look(ctx, resource)
	if err != nil {
		return nil, err
	}
	sights[0].Open, err = s.openWork(ctx, resource)
	return &sights[0], err
}

// Leases returns up to limit resources that somebody has a lease of. more says that there are others.
func (s *Site) Leases(ctx context.Context, limit int) (sights []Sight, more bool, err error) {
	held, more, err := s.names(ctx, "", limit)
	if err != nil {
		return nil, false, err
	}
	sights, err = s.Sights(ctx, held...)
	return sights, more, err
}

// Sights returns what both servers say about resources, without their open transactions. It asks nobody about none.
func (s *Site) Sights(ctx context.Context, resources ...string) ([]Sight, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	return s.look(ctx, resources...)
}

// held reports whether somebody has the lease, or is about to.
func (s Sight) held() bool { return s.Lease.Standing != lease.Free }

// fenceToken is 0 if nobody has ever claimed.
func (s Sight) fenceToken() token.Token {
	if s.Fence == nil {
		return 0
	}
	return s.Fence.Token
}

// Overtaken reports whether the fence is above the lease's token: what its holder writes is refused.
func (s Sight) Overtaken() bool {
	return s.held() && s.Lease.Token != 0 && s.fenceToken() > s.Lease.Token
}

// look returns what both servers say about resources. Redis is asked first, so that a fence that is below a lease's
// token was not raised in between.
func (s *Site) look(ctx context.Context, resources ...string) ([]Sight, error) {
	sights := make([]Sight, len(resources))
	if s.redis == nil {
		locks, err := s.locks(ctx)
		if err != nil {
			return nil, err
		}
		for i, r := range resources {
			sights[i] = Sight{Resource: r, Lease: locks[advisory.Key(s.namespace, r)]}
			if sights[i].Lease.Standing == "" {
				sights[i].Lease.Standing = lease.Free
			}
		}
	} else {
		seen, err := s.redis.Look(ctx, resources...)
		if err != nil {
			return nil, err
		}
		for i, v := range seen {
			sights[i] = Sight{Resource: v.Resource, redis: v, Lease: Lease{
				Standing: v.Standing, Label: v.Label, Token: v.Token, LeftMS: v.Left.Milliseconds(),
				Waiting: v.Waiting, Counter: v.Counter,
			}}
		}
	}
	fences, err := s.fencesOf(ctx, resources...)
	for i := range sights {
		if f, ok := fences[sights[i].Resource]; ok {
			sights[i].Fence = &f
		}
	}
	return sights, err
}

// locks returns who has which advisory lock of this database, by key.
func (s *Site) locks(ctx context.Context) (map[int64]Lease, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT (l.classid::bigint << 32) | l.objid::bigint, a.pid, coalesce(a.application_name, ''), a.backend_start
		  FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
		 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
		   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`)
	if err != nil {
		return nil, dbError(ctx, "look at advisory locks", err)
	}
	locks := map[int64]Lease{}
	var key int64
	l := Lease{Standing: lease.Held}
	_, err = pgx.ForEachRow(rows, []any{&key, &l.PID, &l.Label, &l.Since}, func() error {
		locks[key] = l
		return nil
	})
	return locks, dbError(ctx, "look at advisory locks", err)
}

// lockedNames returns the resources whose advisory locks somebody has. PostgreSQL knows a lock by its number alone, so
// a resource is found only once it has a fence.
func (s *Site) lockedNames(ctx context.Context, limit int) (names []string, more bool, err error) {
	locks, err := s.locks(ctx)
	for after := ""; err == nil && len(names) <= limit; {
		var page []Fence
		if page, more, err = s.Fences(ctx, after, 1000); err != nil {
			break
		}
		for _, f := range page {
			if _, ok := locks[advisory.Key(s.namespace, f.Resource)]; ok {
				names = append(names, f.Resource)
			}
			after = f.Resource
		}
		if !more {
			break
		}
	}
	if len(names) > limit {
		return names[:limit], true, err
	}
	return names, false, err
}
