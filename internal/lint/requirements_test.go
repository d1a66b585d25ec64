package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The most indirect requirements that a user's go.mod may get. A service names pgx and go-redis itself, so it has
// those as direct requirements; through the migrations it has goose, and what goose needs.
const (
	mostByGet     = 11 // of `go get` of the library alone, which counts the library as well: nothing imports it yet
	mostOfService = 12 // of a service that uses the library and its migrations
)

// A program that uses the library has no requirement that only tests, the tool or the benchmarks need.
func TestAUserOfTheLibraryGetsFewRequirements(t *testing.T) {
	t.Parallel()
	t.Run("go get", func(t *testing.T) {
		t.Parallel()
		user := newUser(t)
		user.run(t, "get", module+"@"+unreleased)
		wantAtMost(t, mostByGet, user.indirect(t))
	})
	t.Run("a service", func(t *testing.T) {
		t.Parallel()
		wantAtMost(t, mostOfService, requirementsOf(t, service()...))
	})
}

// The control: a service that also imports the comparison gets more requirements, so the count notices what a package
// brings.
func TestAUserOfTheToolGetsMoreRequirements(t *testing.T) {
	t.Parallel()
	if indirect := requirementsOf(t, append(service(), benchModule+"/compare")...); len(indirect) <= mostOfService {
		t.Errorf("with the comparison there are only %d indirect requirements: the count shows nothing", len(indirect))
	}
}

func service() []string { return []string{module, module + "/migrations", pgx + "/pgxpool", redis} }

func wantAtMost(t *testing.T, most int, indirect []string) {
	t.Helper()
	t.Logf("%d indirect requirements", len(indirect))
	if len(indirect) == 0 || len(indirect) > most {
		t.Errorf("%d indirect requirements, want some and at most %d:\n%s", len(indirect), most, strings.Join(indirect, "\n"))
	}
}

// user is a new module outside of this repository. It requires the modules of this checkout in place of released ones.
type user struct{ folder string }

// unreleased is the version that this checkout stands for.
const unreleased = "v0.0.0-00010101000000-000000000000"

func newUser(t *testing.T) user {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	u := user{folder: t.TempDir()}
	u.write(t, "go.mod", "module example.com/user\n\ngo 1.26.0\n\nreplace (\n\t"+module+" => "+root+"\n\t"+
		benchModule+" => "+filepath.Join(root, "bench")+"\n)\n")
	return u
}

func (u user) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(u.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (u user) run(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = u.folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// indirect returns the lines of the module's indirect requirements.
func (u user) indirect(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(u.folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^.* // indirect$`).FindAllString(string(text), -1)
}

// requirementsOf returns the indirect requirements of a program that imports packages.
func requirementsOf(t *testing.T, imports ...string) []string {
	t.Helper()
	u := newUser(t)
	source := "package user\n"
	for _, path := range imports {
		source += "import _ \"" + path + "\"\n"
	}
	u.write(t, "user.go", source)
	require := []string{"mod", "edit", "-require=" + module + "@" + unreleased}
	if strings.HasPrefix(imports[len(imports)-1], benchModule) {
		require = append(require, "-require="+benchModule+"@"+unreleased)
	}
	u.run(t, require...)
	u.run(t, "mod", "tidy")
	return u.indirect(t)
}
