package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// settings writes a file of settings.
func settings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fencepost.env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Flags come first, then the environment, then the file.
func TestTheSettingsMayComeFromAFile(t *testing.T) {
	noServers(t)
	database, redis := testenv.EmptyDatabase(t), testenv.RedisURL(t)
	path := settings(t, "# the night shift's\n\nexport FENCEPOST_POSTGRES_URL='"+database+"'\nREDIS_URL = \""+redis+"\"\n"+
		"FENCEPOST_NAMESPACE=billing\nSOMETHING_ELSE=hunter2\n")
	pending := func(what string, args ...string) {
		t.Helper()
		if got := run(t, args...); got.status != 3 || got.errOut != "" {
			t.Errorf("%s: %+v", what, got)
		}
	}
	pending("before the command", "--settings", path, "migrate", "status")
	pending("after it", "migrate", "status", "--settings="+path)
	// Redis and the namespace: the schema is missing, so the servers were reached.
	if got := run(t, "lease", "ls", "--settings", path); got.status != 0 ||
		!strings.Contains(got.out, "in the namespace billing") {
		t.Errorf("Redis and the namespace: %+v", got)
	}
	if got := run(t, "lease", "ls", "--settings", path, "--namespace=other"); !strings.Contains(
		got.out,
		"in the namespace other",
	) {
		t.Errorf("a flag beside the file: %+v", got)
	}
	t.Setenv("FENCEPOST_NAMESPACE", "from-environment")
	if got := run(t, "lease", "ls", "--settings", path); !strings.Contains(got.out, "in the namespace from-environment") {
		t.Errorf("the environment beside the file: %+v", got)
	}
	t.Setenv("FENCEPOST_SETTINGS", settings(t, "DATABASE_URL="+nowhere+"\n"))
	pending("another file than the environment's", "migrate", "status", "--settings="+path)
	t.Setenv("FENCEPOST_SETTINGS", path)
	pending("the environment's file", "migrate", "status")
}

func TestSettingsThatAreNone(t *testing.T) {
	noServers(t)
	for name, text := range map[string]string{
		"is not NAME=VALUE":                           "FENCEPOST_POSTGRES_URL=x\nhunter2",
		"line 1 is not":                               "password hunter2=1",
		"the quote does not end":                      "REDIS_URL='hunter2",
		"no setting is called FENCEPOST_POSTGRES_URI": "FENCEPOST_POSTGRES_URI=hunter2",
	} {
		if got := run(t, "migrate", "status", "--settings="+settings(t, text)); got.status != 2 ||
			!strings.Contains(got.errOut, name) ||
			strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, args := range [][]string{
		{"migrate", "status", "--settings=/nowhere/at/all"}, {"migrate", "status", "--settings="},
	} {
		if got := run(t, args...); got.status != 2 || !strings.Contains(got.errOut, "--settings") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	t.Setenv("FENCEPOST_SETTINGS", "/nowhere/at/all")
	if got := run(t, "version"); got.status != 2 || !strings.Contains(got.errOut, "--settings") {
		t.Errorf("%+v", got)
	}
}
