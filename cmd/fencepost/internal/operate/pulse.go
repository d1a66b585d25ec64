package operate

import (
	"context"
	"time"
)

// Pulse is what PostgreSQL's statistics say about the fences of all namespaces in the database. The numbers may be some
// seconds old, and begin again after a crash.
type Pulse struct {
	Now    time.Time // by the server's clock
	Claims int64     // how often a fence was written since the statistics began; claims that were rolled back count
	Fences int64     // how many there are, about
}

// Pulse reads the statistics. It reads no fence, so it costs the same however many there are.
func (s *Site) Pulse(ctx context.Context) (p Pulse, err error) {
	err = s.pool.QueryRow(ctx, `
		SELECT clock_timestamp(), pg_stat_get_tuples_inserted(f.oid) + pg_stat_get_tuples_updated(f.oid),
		       pg_stat_get_live_tuples(f.oid)
		  FROM (SELECT 'fencepost.fence'::regclass::oid AS oid) AS f`).Scan(&p.Now, &p.Claims, &p.Fences)
	return p, dbError(ctx, "look at the statistics", err)
}
