package lint_test

import (
	"slices"
	"strings"
	"testing"
)

const (
	pgx   = "github.com/jackc/pgx/v5"
	redis = "github.com/redis/go-redis/v9"
	goose = "github.com/pressly/goose/v3"

	toolModule  = module + "/cmd/fencepost"
	benchModule = module + "/bench"
	otelModule  = module + "/otelfencepost"
	// testKit is imported by the tests of users, and may have what ours have.
	testKit = module + "/fenceposttest"
)

// shipped are the packages that users import, and what those share, with all they may import beyond the standard
// library.
func shipped() map[string][]string {
	of := func(names ...string) []string {
		paths := []string{pgx, module + "/token"}
		for _, name := range names {
			paths = append(paths, module+"/internal/"+name)
		}
		return paths
	}
	packages := map[string][]string{
		module + "/token":             nil,
		module + "/internal/clock":    nil,
		module + "/internal/encoding": {pgx},
		module + "/lease":             {redis, module + "/token", module + "/internal/clock"},
		module + "/fence": of(
			"pgsql", "pgerr", "pgsession", "pgclaim", "pgtable", "pgrow", "pgcommit", "pgcollect",
		),
		module + "/advisory":       of("clock", "encoding", "turns"),
		module + "/internal/turns": {module + "/token"},
		module + "/migrations":     {goose},
		module: append(
			of("encoding", "turns", "pgclaim", "pgtable", "pgrow", "pgbatch", "pgcommit", "pgledger", "pgerr", "pgsession"),
			redis,
			module+"/fence",
			module+"/lease",
			module+"/advisory",
		),
	}
	// The PostgreSQL side, on which fence and the root package both build. Each may import those above it.
	var lower []string
	for _, name := range []string{
		"pgsql", "pgerr", "pgsession", "pgclaim", "pgtable", "pgrow",
		"pgbatch", "pgcommit", "pgledger", "pgcollect",
	} {
		packages[module+"/internal/"+name] = of(append(lower[:len(lower):len(lower)], "encoding")...)
		lower = append(lower, name)
	}
	return packages
}

func TestArrowsPointDownOnly(t *testing.T) {
	t.Parallel()
	packages := list(t, ".", "./...")
	standard := list(t, ".", "std")
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
		if _, ok := shipped()[path]; !ok && path != testKit && !strings.HasPrefix(path, module+"/internal/") &&
			!strings.HasPrefix(path, module+"/examples/") {
			t.Errorf("%s is a package that no rule speaks of", path)
		}
	}
}

// within reports whether a package is one of the allowed, or inside one of another module.
func within(imported string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return imported == a || !strings.HasPrefix(a, module) && strings.HasPrefix(imported, a+"/")
	})
}

// What only tests and the command need never becomes part of a program that uses the library.
func TestTestOnlyLibrariesStayOutOfShippedPackages(t *testing.T) {
	t.Parallel()
	packages := list(t, ".", "./...")
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

// The root module does not know the modules beside it, and the benchmarks do not know the tool.
func TestNestedModulesDependOnTheRootAndNotTheReverse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		folder string
		never  []string
	}{
		{".", []string{benchModule, toolModule, otelModule}},
		{"bench", []string{toolModule, otelModule}},
		{"otelfencepost", []string{toolModule, benchModule}},
	} {
		for path, p := range list(t, tt.folder, "./...") {
			for _, imported := range p.Imports {
				if within(imported, tt.never) ||
					slices.ContainsFunc(tt.never, func(m string) bool { return strings.HasPrefix(imported, m+"/") }) {
					t.Errorf("%s imports %s", path, imported)
				}
			}
		}
	}
}

// fromRoot is what the nested modules may import from the root module: the public packages, and the kit that tests
// share.
func fromRoot() []string {
	allowed := []string{
		module + "/internal/services", module + "/internal/testenv", module + "/internal/faults",
		module + "/internal/process", module + "/internal/clock", module + "/internal/encoding",
	}
	for path := range shipped() {
		allowed = append(allowed, path)
	}
	return allowed
}

func TestNestedModulesUseThePublicPackagesAndTheTestKit(t *testing.T) {
	t.Parallel()
	for folder, own := range map[string]string{
		"bench": benchModule, "cmd/fencepost": toolModule, "otelfencepost": otelModule,
	} {
		for path, p := range list(t, folder, "./...") {
			for _, imported := range p.Imports {
				beside := imported == own || strings.HasPrefix(imported, own+"/") || strings.HasPrefix(imported, benchModule+"/")
				if (imported == module || strings.HasPrefix(imported, module+"/")) && !beside &&
					!slices.Contains(fromRoot(), imported) {
					t.Errorf("%s imports %s", path, imported)
				}
			}
		}
	}
}

func TestTheCommandIsOneLineOverTheCLI(t *testing.T) {
	t.Parallel()
	for _, imported := range list(t, "cmd/fencepost", ".")[toolModule].Imports {
		if strings.HasPrefix(imported, module) && imported != toolModule+"/internal/cli" &&
			imported != module+"/internal/services" {
			t.Errorf("the command imports %s", imported)
		}
	}
}
