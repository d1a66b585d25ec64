package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fencepost-pg/fencepost"

// pkg is what `go list` says of one package, test files left out.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func list(t *testing.T, patterns ...string) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, patterns...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := make(map[string]pkg)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	return packages
}

const (
	pgx   = "github.com/jackc/pgx/v5"
	redis = "github.com/redis/go-redis/v9"
	goose = "github.com/pressly/goose/v3"
)

// shipped are the packages that users import, and what those share, with all they may import beyond the standard library.
func shipped() map[string][]string {
	return map[string][]string{
		module + "/token":          nil,
		module + "/internal/clock": nil,
		module + "/lease":          {redis, module + "/token", module + "/internal/clock"},
		module + "/fence":          {pgx, module + "/token"},
		module + "/advisory":       {pgx, module + "/token", module + "/internal/clock"},
		module + "/migrations":     {goose},
		module:                     {pgx, redis, module + "/token", module + "/fence", module + "/lease", module + "/advisory"},
	}
}

func TestArrowsPointDownOnly(t *testing.T) {
	t.Parallel()
	packages := list(t, "./...")
	standard := list(t, "std")
	for path, allowed := range shipped() {
		p, ok := packages[path]
		if !ok {
			t.Errorf("%s is gone", path)
		}
		for _, imported := range p.Imports {
			if !standard[imported].Standard && !within(imported, allowed) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
	for path := range packages {
		if _, ok := shipped()[path]; !ok && !strings.HasPrefix(path, module+"/internal/") && !strings.HasPrefix(path, module+"/cmd/") &&
			!strings.HasPrefix(path, module+"/examples/") {
			t.Errorf("%s is a package that no rule speaks of", path)
		}
	}
}

// within reports whether a package is one of the allowed, or inside one of another module.
func within(imported string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return imported == a || a != module && strings.HasPrefix(imported, a+"/")
	})
}

// What only tests and the command need never reaches a program that uses the library.
func TestTestOnlyLibrariesStayOutOfShippedPackages(t *testing.T) {
	t.Parallel()
	packages := list(t, "./...")
	for path := range shipped() {
		for _, dep := range packages[path].Deps {
			for _, kept := range []string{
				"testing", "github.com/testcontainers", "github.com/docker", "github.com/Shopify", "go.uber.org/goleak",
				"github.com/google/go-cmp", "github.com/stretchr", "pgregory.net", "github.com/alecthomas",
			} {
				if dep == kept || strings.HasPrefix(dep, kept+"/") {
					t.Errorf("%s depends on %s", path, dep)
				}
			}
		}
	}
}

func TestTheCommandIsOneLineOverTheCLI(t *testing.T) {
	t.Parallel()
	for _, imported := range list(t, "./cmd/...")[module+"/cmd/fencepost"].Imports {
		if strings.HasPrefix(imported, module) && imported != module+"/internal/cli" && imported != module+"/internal/services" {
			t.Errorf("the command imports %s", imported)
		}
	}
}
