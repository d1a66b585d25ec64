package migrations_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/migrations"
)

// migratorEnv carries the job of a migrator process, which is the test binary executed again.
const migratorEnv = "FENCEPOST_TEST_MIGRATOR"

// job is what a migrator process does: Up on a database, with or without the token column.
type job struct {
	URL    string
	Column bool
	// Hang is a statement that the process runs once it has added the column, in the same
	// transaction, after it has said so. "-" is no statement: it waits outside the server.
	Hang string
}

const (
	// inside is what a migrator with Hang says once it is in the middle of the migration.
	inside = "inside"
	// waiting is a part of the line that a migrator writes when the migration lock is taken.
	waiting = "migration waits for another migrator"
)

// runMigrator is main of a migrator process.
func runMigrator(text string) int {
	if err := migrate(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func migrate(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	db, err := sql.Open("pgx", j.URL)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	opts := migrations.Options{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	if j.Column {
		m, err := migrations.TokenColumn(tokenVersion, accounts)
		if err != nil {
			return err
		}
		if j.Hang != "" {
			m = hanging(m, j.Hang)
		}
		opts.Also = append(opts.Also, m)
	}
	_, err = migrations.Up(context.Background(), db, &opts)
	return err
}

// hanging is m, but it stays in the middle.
func hanging(m *goose.Migration, statement string) *goose.Migration {
	return goose.NewGoMigration(m.Version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if err := m.UpFnContext(ctx, tx); err != nil {
			return err
		}
		fmt.Println(inside)
		if statement == "-" {
			<-time.After(time.Hour) // the test kills it
			return nil
		}
		_, err := tx.ExecContext(ctx, statement)
		return err
	}}, nil)
}

// process is a running migrator.
type process struct {
	cmd    *exec.Cmd
	out    *bufio.Scanner
	stderr *strings.Builder
}

func start(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: that ends before Cleanup, and patience must end a process that hangs.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &process{cmd: exec.CommandContext(ctx, self), stderr: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), migratorEnv+"="+string(text))
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

func startAll(t *testing.T, n int, j job) []*process {
	t.Helper()
	all := make([]*process, n)
	for i := range all {
		all[i] = start(t, j)
	}
	return all
}

// awaitInside waits until the process is in the middle of its migration.
func (p *process) awaitInside(t *testing.T) {
	t.Helper()
	p.await(t, inside)
}

// awaitWaiting waits until the process has found the migration lock taken.
func (p *process) awaitWaiting(t *testing.T) {
	t.Helper()
	p.await(t, waiting)
}

// await reads the process's output up to the line that contains a text. The rest is left for the next await.
func (p *process) await(t *testing.T, text string) {
	t.Helper()
	for p.out.Scan() {
		if strings.Contains(p.out.Text(), text) {
			return
		}
	}
	t.Fatalf("migrator never said %q: %s", text, p.stderr)
}

// kill ends the process as kill -9 does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // "signal: killed"
}

// wantSuccess waits until all processes have ended, and requires that they succeeded.
func wantSuccess(t *testing.T, all []*process) {
	t.Helper()
	for i, p := range all {
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("migrator %d: %v: %s", i, err, p.stderr)
		}
	}
}
