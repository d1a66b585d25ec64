package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Eight pods start "migrate up" at once, through a pooler in transaction mode, and one of them is killed while all wait
// for their turn. The others apply each migration once. Afterwards nothing is pending, so a ninth pod takes no lock: it
// ends although another session has the migration lock.
func TestEightPodsMigrateAndOneIsKilled(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	pooler := testenv.PgBouncer(t, url, &services.PgBouncerOptions{PoolSize: 4})
	pool := testenv.PoolOn(t, url)
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	const take = `SELECT pg_advisory_xact_lock(1179534157, 0)`
	if _, err := lock.Exec(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	pods := make([]*pod, 8)
	for i := range pods {
		pods[i] = startPod(t, pooler.URL())
	}
	// Each waiting migrator polls. The pooler's connections are fewer, so one poll is enough of a sign.
	const polled = `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE '/* waits for the migration lock */%'`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := testenv.UntilQuery(ctx, pool, polled); err != nil {
		t.Fatal(err)
	}
	if err := pods[3].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = pods[3].cmd.Wait() // "signal: killed"
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, p := range pods {
		if i != 3 {
			p.wantSuccess(t)
		}
	}
	if got := states(t, url); got != all(t, "applied", every) {
		t.Errorf("status: %s", got)
	}
	var twice int
	const again = `SELECT count(*) - count(DISTINCT version_id) FROM fencepost.goose_version`
	if err := pool.QueryRow(t.Context(), again).Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d versions stand there twice, %v", twice, err)
	}

	if lock, err = pool.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	startPod(t, pooler.URL()).wantSuccess(t)
}

// pod is a process that runs "fencepost migrate up".
type pod struct {
	cmd *exec.Cmd
	err *bytes.Buffer
}

func startPod(t *testing.T, url string) *pod {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &pod{cmd: exec.CommandContext(ctx, self, "migrate", "up"), err: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), beProgram+"=1", "FENCEPOST_POSTGRES_URL="+url)
	p.cmd.Stderr = p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pod) wantSuccess(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("migrate up: %v: %s", err, p.err)
	}
}
