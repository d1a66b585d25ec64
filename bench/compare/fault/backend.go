package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/bench/wait"
)

// killBackends ends all backends of the victim while it is between reading and writing, including that of a session
// that holds its lock. The victim continues when others have taken over, or when its work has taken as long as it may,
// half a TTL. The proof is that PostgreSQL ended at least one backend, and that all of them are gone.
func killBackends(ctx context.Context, s *Scene) error {
	e, err := s.announced(ctx)
	if err != nil {
		return err
	}
	killed, err := s.terminate(ctx)
	if err != nil {
		return err
	}
	if killed == 0 {
		return fmt.Errorf("%w: worker %d had no backend", ErrMissed, s.Victim)
	}
	if err := s.overtakenPerhaps(ctx, e, s.TTL/2); err != nil {
		return err
	}
	return s.goOn()
}

// terminate returns how many backends it has ended.
func (s *Scene) terminate(ctx context.Context) (killed int, err error) {
	var pids []int32
	err = s.Pool.QueryRow(ctx, `
		SELECT coalesce(array_agg(pid) FILTER (WHERE pg_terminate_backend(pid)), '{}') FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1`, s.Applications[s.Victim]).Scan(&pids)
	if err != nil {
		return 0, fmt.Errorf("terminate backends: %w", err)
	}
	for left := len(pids); left > 0; {
		if err := wait.For(ctx, 2*time.Millisecond); err != nil { // PostgreSQL tells nobody that they are gone
			return 0, err
		}
		if err := s.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)`, pids).
			Scan(&left); err != nil {
			return 0, fmt.Errorf("look for backends: %w", err)
		}
	}
	return len(pids), nil
}
