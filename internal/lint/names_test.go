package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// SQL is the contract between migrations and fence, which do not import each other. A migration creates every name of
// the schema fencepost that the Go code uses.
func TestGoAndSQLAgreeOnNames(t *testing.T) {
	t.Parallel()
	created := regexp.MustCompile(`CREATE (?:TABLE|FUNCTION) (fencepost\.\w+)`)
	names := make(map[string]bool)
	var sql strings.Builder
	err := fs.WalkDir(migrations.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS(), path)
		sql.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range created.FindAllStringSubmatch(sql.String(), -1) {
		names[m[1]] = true
	}
	used := regexp.MustCompile(`(?:FROM |SELECT )(fencepost\.\w+)`)
	found := 0
	for _, path := range append(sources(t, "../../fence"), sources(t, "../pg*")...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range used.FindAllStringSubmatch(string(text), -1) {
			if found++; !names[m[1]] {
				t.Errorf("%s uses %s, which no migration creates", filepath.Base(path), m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no name was found in the Go code: the test shows nothing")
	}
	if migrations.DefaultColumn != fence.DefaultTokenColumn {
		t.Errorf("the token column is %q to migrations and %q to fence", migrations.DefaultColumn, fence.DefaultTokenColumn)
	}
	for _, code := range []string{"ZF001", "ZF004"} {
		if !strings.Contains(sql.String(), code) {
			t.Errorf("SQLSTATE %s is raised by no migration", code)
		}
	}
}

func sources(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// The README's code is the code of the examples, so it compiles and runs.
func TestTheReadmesCodeIsTheExamples(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../../README.md"), -1)
	if len(blocks) == 0 {
		t.Error("the README shows no code")
	}
	var compiled string
	for _, file := range []string{
		"example_test.go", "examples/quickstart/main.go", "examples/rows/main.go", "fenceposttest/worker_test.go",
	} {
		compiled += squeeze(read(t, "../../"+file)) + "\n"
	}
	for _, block := range blocks {
		if !strings.Contains(compiled, squeeze(block[1])) {
			t.Errorf("this code of the README is in no example:\n%s", block[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// squeeze removes indentation, so that it does not matter.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

// Tests that exist hold every case and invariant that the safety page claims.
func TestTheSafetyPageNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := make(map[string]bool)
	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 20 {
		t.Errorf("the safety page names %d tests", len(named))
	}
	for _, m := range named {
		if !declared[m[1]] {
			t.Errorf("the safety page names %s, which does not exist", m[1])
		}
	}
}

// Every file that the safety page names exists, by its path from the root of the repository.
func TestTheSafetyPageNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	missing, named := missingFiles(os.DirFS("../.."), read(t, "../../docs/safety.md"))
	if len(missing) > 0 {
		t.Errorf("the safety page names files that do not exist: %q", missing)
	}
	if named < 20 {
		t.Errorf("the safety page names %d files", named)
	}
	// The control: a file that does not exist is found.
	if missing, _ := missingFiles(os.DirFS("../.."), "`go.mod`, `store.go`, `lease/nothing.lua`"); len(missing) != 1 {
		t.Errorf("found %q", missing)
	}
}

// missingFiles returns the source files that a page names in backticks and that do not exist, and how many it names.
func missingFiles(root fs.FS, page string) (missing []string, named int) {
	for _, m := range regexp.MustCompile("`([\\w./-]+\\.(?:go|sql|lua|sh))`").FindAllStringSubmatch(page, -1) {
		named++
		if _, err := fs.Stat(root, m[1]); err != nil {
			missing = append(missing, m[1])
		}
	}
	return missing, named
}
