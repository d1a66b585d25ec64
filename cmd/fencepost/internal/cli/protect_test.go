package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// oddTable is a table whose names contain every character that is allowed, also as the command line spells them.
const (
	oddTable    = `"Sh op"."in""v.o'i\ce"`
	oddDeclared = oddTable + `=in'v\oice:{the "id"}`
	makeOdd     = `CREATE SCHEMA "Sh op"; CREATE TABLE ` + oddTable + ` ("the ""id""" text PRIMARY KEY)`
)

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// stateOf returns the SQLSTATE with which a statement fails, or "".
func stateOf(t *testing.T, pool *pgxpool.Pool, sql string) string {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// protect writes the migrations of a level into a folder, and returns how many files it wrote.
func protect(t *testing.T, format, dir, level string, tables ...string) int {
	t.Helper()
	args := []string{"protect", "--level", level, "--format", format, "--dir", dir, "--namespace", "shop", "--json"}
	got := run(t, append(args, tables...)...)
	if got.status != 0 {
		t.Fatalf("%q: %+v", args, got)
	}
	return len(decode[struct{ Written []string }](t, got).Written)
}

// check compares tables with a level, and returns what differs.
func check(t *testing.T, url, level string, tables ...string) string {
	t.Helper()
	args := []string{"protect", "--check", "--level", level, "--namespace", "shop", "--database=" + url}
	got := run(t, append(args, tables...)...)
	if (got.status == 0) != (got.out == "") || got.status > 1 {
		t.Errorf("check: %+v", got)
	}
	return got.out
}

// The levels are applied one after the other, each by the tool that migrates the application's tables, and then undone.
func TestProtectWritesMigrationsForEachLevel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "goose", "golang-migrate"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, by := testenv.Database(t), tools[name]
			pool := testenv.PoolOn(t, url)
			mustExec(t, pool, makeOdd+`; CREATE TABLE public.rate (id int PRIMARY KEY)`)
			declared := []string{oddDeclared, "public.rate=rates"}
			dir := filepath.Join(t.TempDir(), "migrations")
			perStep := 1
			if name != "goose" {
				perStep = 2 // up and down apart
			}
			for _, step := range []struct {
				level string
				steps int
				state string // of a write without a claim
			}{
				{"observe", 4, ""},
				{"observe", 0, ""},
				{"enforce", 2, "ZF004"},
				{"enforce", 0, "ZF004"},
				// Back to observing, because something was overlooked, and enforced once more.
				{"observe", 2, ""},
				{"observe", 0, ""},
				{"enforce", 2, "ZF004"},
			} {
				if n := protect(t, name, dir, step.level, declared...); n != step.steps*perStep {
					t.Errorf("%s: %d files, want %d", step.level, n, step.steps*perStep)
				}
				if name == "plain" {
					dir = onlyNew(t, dir, by, url)
				} else {
					by.up(t, url, dir)
				}
				if wrong := check(t, url, step.level, declared...); wrong != "" {
					t.Errorf("after %s:\n%s", step.level, wrong)
				}
				if got := stateOf(t, pool, `INSERT INTO public.rate VALUES (1) ON CONFLICT DO NOTHING`); got != step.state {
					t.Errorf("%s: a write without a claim fails with %q, want %q", step.level, got, step.state)
				}
			}
			if name != "goose" {
				return
			}
			provider := gooseProvider(t, url, dir)
			for range 2 { // the tables are observed again, and not unprotected
				if _, err := provider.Down(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if wrong := check(t, url, "observe", declared...); wrong != "" {
				t.Errorf("after the way back:\n%s", wrong)
			}
			gooseDown(t, url, dir)
			if wrong := check(t, url, "column", oddTable); !strings.Contains(wrong, "it has no token column") {
				t.Errorf("after the way down: %q", wrong)
			}
		})
	}
}

// onlyNew runs the files of a folder that psql has not run, as psql itself keeps no records.
func onlyNew(t *testing.T, dir string, by tool, url string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.up.sql"))
	if err != nil {
		t.Fatal(err)
	}
	fresh := t.TempDir()
	for _, path := range paths {
		done := path + ".done"
		if _, err := os.Stat(done); err == nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(done, nil, 0o600),
			os.WriteFile(filepath.Join(fresh, filepath.Base(path)), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(fresh, "*.sql")); len(left) > 0 {
		by.up(t, url, fresh)
	}
	return dir
}

// A column with tokens is not dropped.
func TestTheWayDownKeepsTokens(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool := testenv.PoolOn(t, url)
	mustExec(t, pool, `CREATE TABLE public.rate (id int PRIMARY KEY)`)
	dir := filepath.Join(t.TempDir(), "migrations")
	protect(t, "goose", dir, "column", "public.rate")
	gooseUp(t, url, dir)
	mustExec(t, pool, `INSERT INTO public.rate VALUES (1, 7)`)
	_, err := gooseProvider(t, url, dir).Down(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ZF003") {
		t.Errorf("down: %v, want ZF003", err)
	}
	mustExec(t, pool, `UPDATE public.rate SET last_fencing_token = 0`) // the control: tokens are the reason
	gooseDown(t, url, dir)
}

// --apply does the same at once, and may be repeated without harm.
func TestProtectApplies(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool := testenv.PoolOn(t, url)
	mustExec(t, pool, makeOdd+`; CREATE TABLE public.rate (id int PRIMARY KEY)`)
	apply := func(level string, tables ...string) result {
		args := []string{"protect", "--apply", "--level", level, "--namespace", "shop", "--database=" + url}
		return run(t, append(args, tables...)...)
	}
	for _, level := range []string{"rule", "observe", "enforce", "enforce"} {
		if got := apply(level, oddDeclared, "public.rate=rates"); got.status != 0 || strings.Count(got.out, level) != 2 {
			t.Fatalf("%s: %+v", level, got)
		}
		if wrong := check(t, url, level, oddDeclared, "public.rate=rates"); wrong != "" {
			t.Errorf("after %s:\n%s", level, wrong)
		}
	}
	if got := stateOf(t, pool, `DELETE FROM public.rate`); got != "" {
		t.Errorf("no row is refused: %s", got)
	}
	if got := stateOf(t, pool, `INSERT INTO public.rate VALUES (1)`); got != "ZF004" {
		t.Errorf("a write without a claim: %q", got)
	}
	if got := apply("column", "public.nowhere"); got.status != 1 || !strings.Contains(got.errOut, "nowhere") {
		t.Errorf("a table that does not exist: %+v", got)
	}
}

// A role that may only read finds every way in which a table can differ from its declaration.
func TestProtectCheckFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool := testenv.PoolOn(t, url)
	operator, role := asRole(t, url, "_operator")
	mustExec(t, pool, `SELECT fencepost.grant_operator('`+pgx.Identifier{role}.Sanitize()+`')`)
	mustExec(t, pool, `CREATE TABLE public.bare (id int PRIMARY KEY);
		CREATE TABLE public.loose (id int PRIMARY KEY, last_fencing_token bigint);
		CREATE TABLE public.text (id int PRIMARY KEY, last_fencing_token text NOT NULL);
		CREATE TABLE public.off (id int PRIMARY KEY);
		CREATE TABLE public.good (id int PRIMARY KEY)`)
	for _, table := range []string{"off", "good"} {
		mustRun(t, "protect", "--apply", "--level=observe", "--namespace=shop", "--database="+url,
			"public."+table+"="+table+":{id}")
	}
	mustExec(t, pool, `ALTER TABLE public.off DISABLE TRIGGER "~fencepost"`)
	for _, c := range []struct{ level, table, want string }{
		{"column", "public.good", ""},
		{"observe", "public.good=good:{id}", ""},
		{"column", "public.nowhere", "there is no such table"},
		{"column", "public.bare", "it has no token column last_fencing_token"},
		{"column", "public.loose", "may be NULL"},
		{"column", "public.text", "is not bigint"},
		{"rule", "public.good=good:{id}", "its rule is \"\""},
		{"enforce", "public.bare=bare:{id}", "it has no token column"},
		{"enforce", "public.good=good:{id}", "its mode is observe, not enforce"},
		{"observe", "public.good=better:{id}", "its prefix is good:, not better:"},
		{"observe", "public.good=good:", "its list of columns is [id], not []"},
		{"observe", "public.off=off:{id}", "disabled"},
	} {
		got := check(t, operator, c.level, c.table)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.level, c.table, got, c.want)
		}
	}
	got := run(t, "protect", "--check", "--level=enforce", "--namespace=shop", "--json", "--database="+operator,
		"public.good=good:{id}", "public.off=off:{id}")
	problems := decode[struct {
		Problems []struct{ Table, Problem string }
	}](t, got).Problems
	if got.status != 1 || len(problems) != 2 || problems[1].Table != `"public"."off"` ||
		!strings.Contains(got.errOut, `not as declared: "public"."good", "public"."off"`) {
		t.Errorf("check --json: %+v", got)
	}
}

// If the check cannot be made, that is not a difference: the status tells a pipeline so, and the error names the
// remedy.
func TestProtectCheckSaysWhatKeepsItFromLooking(t *testing.T) {
	t.Parallel()
	check := func(url string) result {
		return run(t, "protect", "--check", "--level=enforce", "--namespace=shop", "public.rate=rates", "--database="+url)
	}
	empty := testenv.EmptyDatabase(t)
	const table = `CREATE TABLE public.rate (id int PRIMARY KEY, last_fencing_token bigint NOT NULL)`
	mustExec(t, testenv.PoolOn(t, empty), table)
	if got := check(empty); got.status != 69 || !strings.Contains(got.errOut, `run "fencepost migrate up"`) {
		t.Errorf("without migrations: %+v", got)
	}
	url := testenv.Database(t)
	mustExec(t, testenv.PoolOn(t, url), table)
	stranger, _ := asRole(t, url, "_stranger")
	if got := check(stranger); got.status != 69 || !strings.Contains(got.errOut, "fencepost grant --operator") {
		t.Errorf("without rights: %+v", got)
	}
	if got := check(url); got.status != 1 || !strings.Contains(got.out, "it is not protected") { // the control
		t.Errorf("as the owner: %+v", got)
	}
}

func TestProtectUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"is not a table", []string{"--level=column", "invoice"}},
		{"takes no resource", []string{"--level=column", "shop.invoice=invoice:{id}"}},
		{"needs the resource of a row", []string{"--level=enforce", "shop.invoice"}},
		{"is not the resource of a row", []string{"--level=enforce", "shop.invoice={id}:invoice"}},
		{"stands here twice", []string{"--level=column", "a.b", `"a".b`}},
		{"control character", []string{"--level=column", "a.\"b\nc\""}},
		{"is longer than 63 bytes", []string{"--level=column", "a." + strings.Repeat("b", 64)}},
		{"exclude each other", []string{"--level=column", "--apply", "--check", "a.b"}},
		{"exclude each other", []string{"--level=column", "--check", "--dir=x", "a.b"}},
		{"missing flags: --level", []string{"a.b"}},
	} {
		got := run(t, append([]string{"protect"}, c.args...)...)
		if got.status != 2 || !strings.Contains(got.errOut, c.want) {
			t.Errorf("%q: %+v, want %s", c.args, got, c.want)
		}
	}
}
