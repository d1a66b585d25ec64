package cli_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	atlas "ariga.io/atlas/sql/migrate"
	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5" // the scheme pgx5
	_ "github.com/golang-migrate/migrate/v4/source/file"     // the scheme file
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// tool runs the files of a folder in the way that it does for its users.
type tool struct {
	up, down func(t *testing.T, url, dir string)
}

// tools are those that run here, and, by what they send, those that do not.
var tools = map[string]tool{
	"plain":          {psql("*.up.sql", false), psql("*.down.sql", true)},
	"goose":          {gooseUp, gooseDown},
	"golang-migrate": {golangMigrate((*migrate.Migrate).Up), golangMigrate((*migrate.Migrate).Down)},
	"flyway":         {send("V*.sql", "", "", false), send("U*.sql", "", "", true)},
	"dbmate": {
		send("*.sql", "-- migrate:up", "-- migrate:down", false),
		send("*.sql", "-- migrate:down", "", true),
	},
	"atlas": {up: atlasUp},
}

func psql(pattern string, backwards bool) func(*testing.T, string, string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		for _, text := range contents(t, dir, pattern, backwards) {
			if said := testenv.Restore(t, url, `\set ON_ERROR_STOP on`+"\n"+text); said != "" {
				t.Fatalf("psql: %s", said)
			}
		}
	}
}

func gooseUp(t *testing.T, url, dir string) {
	t.Helper()
	if _, err := gooseProvider(t, url, dir).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func gooseDown(t *testing.T, url, dir string) {
	t.Helper()
	if _, err := gooseProvider(t, url, dir).DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

func gooseProvider(t *testing.T, url, dir string) *goose.Provider {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func golangMigrate(step func(*migrate.Migrate) error) func(*testing.T, string, string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		_, address, _ := strings.Cut(url, "://")
		m, err := migrate.New("file://"+dir, "pgx5://"+address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = m.Close() }()
		if err := step(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			t.Fatal(err)
		}
	}
}

// atlasUp has Atlas split the files, and sends each file's statements in a transaction.
func atlasUp(t *testing.T, url, path string) {
	t.Helper()
	dir, err := atlas.NewLocalDir(path)
	if err != nil {
		t.Fatal(err)
	}
	files, err := dir.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		statements, err := file.Stmts()
		if err != nil {
			t.Fatal(err)
		}
		inTransaction(t, url, statements...)
	}
}

func inTransaction(t *testing.T, url string, texts ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, text := range texts {
			if _, err := tx.Conn().PgConn().Exec(t.Context(), text).ReadAll(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// send sends the text between two lines of each file, unchanged and in a transaction.
func send(pattern, after, before string, backwards bool) func(*testing.T, string, string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		for _, text := range contents(t, dir, pattern, backwards) {
			if after != "" {
				_, text, _ = strings.Cut(text, "\n"+after+"\n")
			}
			if before != "" {
				text, _, _ = strings.Cut(text, "\n"+before+"\n")
			}
			inTransaction(t, url, text)
		}
	}
}

// contents returns the texts of the matching files, in the order of their names or in the reverse order.
func contents(t *testing.T, dir, pattern string, backwards bool) (texts []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s in %s: %q, %v", pattern, dir, paths, err)
	}
	if backwards {
		slices.Reverse(paths)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// files writes a folder of migrations for a tool.
func files(t *testing.T, format string, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "migrations")
	got := run(t, append([]string{"migrate", "sql", "--json", "--format", format, "--dir", dir}, args...)...)
	if written := decode[struct{ Written []string }](t, got).Written; got.status != 0 || len(written) == 0 {
		t.Fatalf("migrate sql: %+v", got)
	}
	return dir
}

// states returns the state of each migration, in the order of versions.
func states(t *testing.T, url string) string {
	t.Helper()
	got := run(t, "migrate", "status", "--json", "--database="+url)
	result := decode[struct {
		Migrations []migration
		Problems   []string
	}](t, got)
	if len(result.Problems) > 0 {
		t.Errorf("problems: %q", result.Problems)
	}
	var list []string
	for _, m := range result.Migrations {
		list = append(list, m.State)
	}
	return strings.Join(list, " ")
}

// all returns the states of a database in which the migrations up to one have the given state, and the rest are
// pending.
func all(t *testing.T, state string, upTo int) string {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "sql/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	list := slices.Repeat([]string{"pending"}, len(names))
	for i := range min(upTo, len(names)) {
		list[i] = state
	}
	return strings.Join(list, " ")
}

// every is more than there are.
const every = 1000

// schema describes the objects of the schema fencepost, with their rights and comments.
func schema(t *testing.T, url string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(testenv.Dump(t, url, "-s", "-n", "fencepost")) {
		if !strings.HasPrefix(line, `\`) && !strings.HasPrefix(line, "--") { // \restrict has a random key
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	got := run(t, args...)
	if got.status != 0 {
		t.Fatalf("%q: %+v", args, got)
	}
	return got.out
}

// migrate up and status recognise migrations that another tool has applied, and the schema is the same.
func TestADatabaseThatAnotherToolMigratedIsKnown(t *testing.T) {
	t.Parallel()
	ours := testenv.EmptyDatabase(t)
	mustRun(t, "migrate", "up", "--database="+ours)
	want := schema(t, ours)
	for name, by := range tools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, dir := testenv.EmptyDatabase(t), files(t, name)
			for range 2 { // the second time the tool applies again what was taken down
				by.up(t, url, dir)
				if got := states(t, url); got != all(t, "applied", every) {
					t.Errorf("status: %s", got)
				}
				if got := mustRun(t, "migrate", "up", "--database="+url); got != "nothing to apply\n" {
					t.Errorf("up: %s", got)
				}
				if got := schema(t, url); got != want {
					t.Errorf("the schema differs:\n%s", got)
				}
				if by.down == nil {
					mustRun(t, "migrate", "down", "--yes", "--database="+url)
				} else {
					by.down(t, url, dir)
				}
				if got := states(t, url); got != all(t, "", 0) {
					t.Errorf("status after the way down: %s", got)
				}
			}
		})
	}
}

// Files that another tool runs change nothing that migrate up has applied. The same holds for the way down.
func TestFilesDoNothingInADatabaseThatUpMigrated(t *testing.T) {
	t.Parallel()
	for name, by := range tools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, dir := testenv.EmptyDatabase(t), files(t, name)
			mustRun(t, "migrate", "up", "--database="+url)
			by.up(t, url, dir)
			if got := states(t, url); got != all(t, "applied", every) {
				t.Errorf("status: %s", got)
			}
			if by.down == nil {
				return
			}
			mustRun(t, "migrate", "down", "--yes", "--database="+url)
			by.down(t, url, dir)
			if got := states(t, url); got != all(t, "", 0) {
				t.Errorf("status after the way down: %s", got)
			}
		})
	}
}

// A tool applies the first part, and migrate up the rest.
func TestUpGoesOnWhereAnotherToolStopped(t *testing.T) {
	t.Parallel()
	for name, by := range tools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			by.up(t, url, files(t, name, "--to", "3"))
			if got := states(t, url); got != all(t, "applied", 3) {
				t.Errorf("status: %s", got)
			}
			got := mustRun(t, "migrate", "up", "--database="+url)
			if strings.Contains(got, "00003") || !strings.Contains(got, "applied  00004_protect") {
				t.Errorf("up: %s", got)
			}
		})
	}
}

// The control: without its record, what a file applies is at best found in the schema.
func TestWithoutTheRecordAMigrationIsNotKnown(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	sql := mustRun(t, "migrate", "sql", "--to", "1")
	const record = "INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES (1, true);"
	if !strings.Contains(sql, record) {
		t.Fatal("the record is not in the SQL")
	}
	if said := testenv.Restore(t, url, strings.ReplaceAll(sql, record, "")); said != "" {
		t.Fatal(said)
	}
	if got := states(t, url); got != all(t, "found", 1) {
		t.Errorf("status: %s", got)
	}
}

// Printed for psql, both ways, in one go.
func TestPsqlRunsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	for _, step := range []struct {
		args []string
		want string
	}{
		{nil, all(t, "applied", every)},
		{[]string{"--down", "--from", "4"}, all(t, "applied", 3)},
		{[]string{"--from", "4", "--to", "4"}, all(t, "applied", 4)},
		{[]string{"--down"}, all(t, "", 0)},
	} {
		if said := testenv.Restore(t, url, mustRun(t, append([]string{"migrate", "sql"}, step.args...)...)); said != "" {
			t.Errorf("%q: %s", step.args, said)
		}
		if got := states(t, url); got != step.want {
			t.Errorf("%q: %s, want %s", step.args, got, step.want)
		}
	}
}

// A file waits for another migrator instead of failing. The control is the same SQL without that wait.
func TestAFileWaitsForTheMigrationLock(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	pool := testenv.PoolOn(t, url)
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1179534157, 0)`); err != nil {
		t.Fatal(err)
	}
	text := mustRun(t, "migrate", "sql", "--to", "1")
	wait := "PERFORM pg_catalog.pg_advisory_xact_lock(1179534157, 0);"
	if said := testenv.Restore(t, url, strings.Replace(text, wait, "", 1)); !strings.Contains(said, "another migrator") {
		t.Errorf("without the wait: %q", said)
	}
	said := make(chan string, 1)
	go func() { said <- testenv.Restore(t, url, text) }()
	const waiting = `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the file waits for longer
	defer cancel()
	if err := testenv.UntilQuery(ctx, pool, waiting); err != nil {
		t.Fatal(err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := <-said; s != "" {
		t.Errorf("after the wait: %s", s)
	}
	if got := states(t, url); !strings.HasPrefix(got, "applied pending") {
		t.Errorf("status: %s", got)
	}
}

func TestMigrateSQLUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no migration from 3 to 2":         {"--from", "3", "--to", "2"},
		"--dir writes both ways":           {"--down", "--dir", "x"},
		"atlas has no files":               {"--down", "--format", "atlas"},
		"must be one of \"plain\",\"goose": {"--format", "ant"},
	} {
		got := run(t, append([]string{"migrate", "sql"}, args...)...)
		if got.status != 2 || !strings.Contains(got.errOut, want) {
			t.Errorf("%q: %+v, want %s", args, got, want)
		}
	}
	if got := run(t, "migrate", "sql", "--from", "99"); got.status != 1 || !strings.Contains(got.errOut, "the last is ") {
		t.Errorf("from 99: %+v", got)
	}
}
