package compare

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// describe writes down what a run is made with.
func (r *run) describe(ctx context.Context, postgres *services.Postgres, found *report.Report) error {
	redis, err := r.singles.take(ctx)
	if err != nil {
		return err
	}
	if err := r.singles.putBack(ctx, redis); err != nil {
		return err
	}
	found.Versions = map[string]string{
		"fencepost": ownVersion(), "go": runtime.Version(), "postgres": postgres.Description, "redis": redis.Description,
		"os": runtime.GOOS + "/" + runtime.GOARCH, "cpu": cpu(),
	}
	err = r.databases.admin.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&found.Settings.Fsync, &found.Settings.SynchronousCommit)
	if err != nil {
		return fmt.Errorf("ask for fsync: %w", err)
	}
	return nil
}

// ownVersion returns the program's version, with the commit if the build knows it.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// cpu says how many there are, and where the system tells, of what kind.
func cpu() string {
	text := fmt.Sprintf("%d CPUs", runtime.NumCPU())
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return text // another system
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return text + ", " + strings.TrimSpace(value)
		}
	}
	return text
}
