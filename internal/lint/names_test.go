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

// SQL is the contract between migrations and fence, which do not import each other: whatever name
// of the schema fencepost the Go code uses, a migration creates.
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
	for _, path := range sources(t, "../../fence") {
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

// The README's quickstart is the body of the root package's example, so it compiles and runs.
func TestTheReadmesCodeIsTheExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := squeeze(string(example))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) == 0 {
		t.Error("the README shows no code")
	}
	for _, block := range blocks {
		if !strings.Contains(compiled, squeeze(block[1])) {
			t.Errorf("this code of the README is not in example_test.go:\n%s", block[1])
		}
	}
}

// squeeze makes indentation not count.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

// Every case and invariant that the safety page claims is held by tests that exist.
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
