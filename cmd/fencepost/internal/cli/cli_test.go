package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// beProgram makes the test binary act as the program, for tests that need a process.
const beProgram = "FENCEPOST_TEST_PROGRAM"

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if os.Getenv(beProgram) != "" {
		os.Exit(cli.Main())
	}
	testenv.Main(m)
}

// result is what a run of the program left behind.
type result struct {
	status      int
	out, errOut string
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	status := cli.Run(t.Context(), args, strings.NewReader(""), &out, &errOut)
	return result{status, out.String(), errOut.String()}
}

// decode reads the one JSON object that the program printed. A field that it does not know is an error.
func decode[T any](t *testing.T, r result) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("standard output is not the JSON object: %v: %s", err, r.out)
	}
	if strings.Count(r.out, "\n") != 1 {
		t.Errorf("standard output is not one line: %q", r.out)
	}
	return v
}

// nowhere is an address that nothing listens on, with a password that must not be shown.
const nowhere = "postgres://somebody:hunter2@127.0.0.1:1/none"

// These run one after the other: one of them sets the environment.
func TestUsage(t *testing.T) {
	noServers(t)
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string // in standard output
		err    string // in standard error
	}{
		"help":              {[]string{"--help"}, 0, "Exit status: 0 done, 1 failed, 2 wrong usage", ""},
		"help of a command": {[]string{"migrate", "up", "--help"}, 0, "$FENCEPOST_POSTGRES_URL", ""},
		"version":           {[]string{"version"}, 0, "fencepost ", ""},
		"nothing":           {nil, 2, "", "expected one of"},
		"unknown command":   {[]string{"mend"}, 2, "", "unexpected argument mend"},
		"unknown flag":      {[]string{"version", "--loud"}, 2, "", "unknown flag --loud"},
		"migrate what":      {[]string{"migrate"}, 2, "", "expected one of"},
		"no database": {
			[]string{"migrate", "up"},
			2, "",
			"--database is missing or empty: give it an address, or set FENCEPOST_POSTGRES_URL",
		},
		"empty database": {[]string{"migrate", "up", "--database="}, 2, "", "--database is missing or empty"},
		"empty one to go down": {
			[]string{"migrate", "down", "--yes", "--database="},
			2, "",
			"--database is missing or empty",
		},
		"not an address": {
			[]string{"migrate", "status", "--database=postgres://h:hunter2"},
			2,
			"", "not a PostgreSQL address",
		},
		"broken escape": {
			[]string{"migrate", "status", "--database=postgres://u:hunter2%zz@h/d"},
			2,
			"", "not a PostgreSQL address",
		},
		"down without yes":     {[]string{"migrate", "down", "--database=" + nowhere}, 2, "", "add --yes"},
		"force without yes":    {[]string{"migrate", "down", "--force", "--database=" + nowhere}, 2, "", "add --yes"},
		"address misplaced":    {[]string{"migrate", "up", nowhere}, 2, "", "unexpected argument"},
		"keywords misplaced":   {[]string{"migrate", "up", "host=h password=hunter2"}, 2, "", "unexpected argument"},
		"nobody listens":       {[]string{"migrate", "up", "--database=" + nowhere}, 69, "", "migrate up"},
		"nobody to ask":        {[]string{"migrate", "status", "--database=" + nowhere}, 69, "", "read migration status"},
		"nobody listens, JSON": {[]string{"migrate", "up", "--json", "--database=" + nowhere}, 69, `"error":`, "migrate up"},
		"nobody to take down": {
			[]string{"migrate", "down", "--yes", "--json", "--database=" + nowhere},
			69,
			`"reverted":[]`, "migrate down",
		},
		"nobody to grant": {[]string{"grant", "x", "--database=" + nowhere}, 69, "", "grant"},
		"nobody to check": {
			[]string{"protect", "--check", "--level=column", "a.b", "--database=" + nowhere},
			69, "", "look for the column",
		},
		"a flag of another one": {[]string{"migrate", "up", "--yes", "--database=" + nowhere}, 2, "", "unknown flag --yes"},
	} {
		got := run(t, c.args...)
		if got.status != c.status {
			t.Errorf("%s: exit status %d, want %d: %s", name, got.status, c.status, got.errOut)
		}
		if !strings.Contains(got.out, c.out) || (c.out == "" && got.out != "") {
			t.Errorf("%s: standard output is %q, want %q in it", name, got.out, c.out)
		}
		if !strings.Contains(got.errOut, c.err) || (c.err == "" && got.errOut != "") {
			t.Errorf("%s: standard error is %q, want %q in it", name, got.errOut, c.err)
		}
		if strings.Contains(got.out+got.errOut, "hunter2") {
			t.Errorf("%s: the password is in the output: %+v", name, got)
		}
	}
}

// noServers removes the environment variables that name a server.
func noServers(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"FENCEPOST_POSTGRES_URL", "DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT",
		"FENCEPOST_REDIS_URL", "REDIS_URL", "FENCEPOST_NAMESPACE", "FENCEPOST_ADVISORY",
	} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil { // Setenv puts it back
			t.Fatal(err)
		}
	}
}

// Each of these names the database. The more specific one wins.
func TestTheAddressMayComeFromTheEnvironment(t *testing.T) {
	address := testenv.EmptyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	for name, variables := range map[string]map[string]string{
		"FENCEPOST_POSTGRES_URL": {"FENCEPOST_POSTGRES_URL": address, "DATABASE_URL": nowhere, "PGHOST": "nowhere"},
		"DATABASE_URL":           {"DATABASE_URL": address, "PGHOST": "nowhere"},
		"libpq's": {
			"PGHOST": config.Host, "PGPORT": fmt.Sprint(config.Port), "PGUSER": config.User, "PGPASSWORD": config.Password,
			"PGDATABASE": config.Database, "PGSSLMODE": "disable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			noServers(t)
			for name, value := range variables {
				t.Setenv(name, value)
			}
			if got := run(t, "migrate", "status"); got.status != 3 || !strings.Contains(got.out, "pending") || got.errOut != "" {
				t.Errorf("status: %+v", got)
			}
		})
	}
}

func TestVersionJSON(t *testing.T) {
	t.Parallel()
	got := run(t, "version", "--json")
	v := decode[struct {
		Version, Revision, Time, Go string
		Modified                    bool
	}](t, got)
	if got.status != 0 || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("version: %+v", got)
	}
}
