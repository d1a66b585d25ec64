package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/wait"
)

func worker(n int) string { return fmt.Sprintf("worker %d", n) }

// pause stops a worker, mostly for longer than its leases last.
func pause(ctx context.Context, s *Stage) (string, error) {
	n, d := s.victim(), s.some(0.3, 2.5)
	w := s.Workers[n]
	return worker(n), forAWhile(ctx, d, func() error { return w.Stop(ctx) }, w.Resume)
}

func kill(ctx context.Context, s *Stage) (string, error) {
	n := s.victim()
	return worker(n), s.Workers[n].Replace(ctx)
}

// starve leaves a worker without connections to PostgreSQL, while the keeper goes on renewing its leases.
func starve(ctx context.Context, s *Stage) (string, error) {
	n, d := s.victim(), s.some(0.5, 2)
	return worker(n), errors.Join(s.Workers[n].Starve(d), wait.For(ctx, d))
}

// jump moves a worker's wall clock forward or back, and later back to where it was.
func jump(ctx context.Context, s *Stage) (string, error) {
	n, by, d := s.victim(), time.Duration(float64(time.Hour)*s.Random.NormFloat64()), s.some(0.2, 1)
	if s.Random.IntN(2) == 0 {
		by = time.Duration(float64(s.TTL) * s.Random.NormFloat64())
	}
	w := s.Workers[n]
	return fmt.Sprintf("%s by %v", worker(n), by.Round(time.Millisecond)),
		forAWhile(ctx, d, func() error { return w.Jump(by) }, func() error { return w.Jump(-by) })
}

// backends returns the process ids of the workers' backends.
func backends(ctx context.Context, pool *pgxpool.Pool) (pids []int32, err error) {
	err = pool.QueryRow(ctx, `SELECT coalesce(array_agg(pid ORDER BY pid), '{}') FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'worker %'`).Scan(&pids)
	if err != nil {
		return nil, fmt.Errorf("look for backends: %w", err)
	}
	return pids, nil
}

func terminate(ctx context.Context, s *Stage) (string, error) {
	pids, err := backends(ctx, s.Pool)
	if err != nil {
		return "", err
	}
	share := s.Random.Float64()
	var ended []int32
	for _, pid := range pids {
		if s.Random.Float64() < share {
			ended = append(ended, pid)
		}
	}
	if _, err := s.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid`, ended); err != nil {
		return "", fmt.Errorf("end backends: %w", err)
	}
	return fmt.Sprintf("%d backends", len(ended)), nil
}

// stopBackend stops a backend (SIGSTOP): to its worker, PostgreSQL hangs in the middle of whatever it was doing.
func stopBackend(ctx context.Context, s *Stage) (string, error) {
	pids, err := backends(ctx, s.Pool)
	if err != nil {
		return "", err
	}
	d := s.some(0.3, 2)
	if len(pids) == 0 {
		return "", errMissed
	}
	pid := int(pids[s.Random.IntN(len(pids))])
	if !isPostgres(pid) {
		return "", fmt.Errorf("%w: the backend is not a process of this machine", errMissed)
	}
	return fmt.Sprintf("backend %d", pid), forAWhile(ctx, d,
		func() error { return signal(pid, syscall.SIGSTOP) },
		func() error { return signal(pid, syscall.SIGCONT) })
}

// signal does not mind that a process has ended meanwhile.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send a signal to a backend: %w", err)
	}
	return nil
}

// isPostgres guards against ids of another machine, or of a container.
func isPostgres(pid int) bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && strings.HasPrefix(string(name), "postgres")
}

// crash ends PostgreSQL at once, and starts it again.
func crash(ctx context.Context, s *Stage) (string, error) {
	d := s.some(0, 1)
	return "PostgreSQL", forAWhile(ctx, d,
		func() error { return s.Postgres.Crash(ctx) },
		func() error { return s.Postgres.Start(context.WithoutCancel(ctx)) })
}
