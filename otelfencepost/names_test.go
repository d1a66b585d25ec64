package otelfencepost_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// The log and the telemetry call one fact by one name: docs/operating.md lists both, as they are.
func TestTheLogAndTheTelemetryNameFactsAlike(t *testing.T) {
	t.Parallel()
	logged, exported := make(map[string]bool), make(map[string]bool)
	for _, line := range namesTable(t) {
		if line.logged != "" {
			logged[line.logged] = true
		}
		if line.exported != "" {
			exported[line.exported] = true
		}
		both := line.logged != "" && line.exported != ""
		if both && line.exported != "fencepost."+line.logged && line.exported != "error.type" {
			t.Errorf("%s is called %s in the log", line.exported, line.logged)
		}
	}
	wantSame(t, "the log", keysOfLogs(t), logged)
	wantSame(t, "the telemetry", exportedNames(t), exported)
}

func wantSame(t *testing.T, what string, used, listed map[string]bool) {
	t.Helper()
	got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(listed))
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s has %q, and docs/operating.md lists %q", what, got, want)
	}
}

// The README's code is the example's, so it compiles.
func TestTheREADMEsCodeIsTheExamples(t *testing.T) {
	t.Parallel()
	page, example := squeezed(t, "README.md"), squeezed(t, "example_test.go")
	_, code, _ := strings.Cut(page, "```go ")
	code, _, _ = strings.Cut(code, " ```")
	if code == "" || !strings.Contains(example, code) {
		t.Errorf("this is in no example: %s", code)
	}
}

// squeezed returns a file without indentation.
func squeezed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

type names struct{ logged, exported string }

// namesTable returns the table of names in docs/operating.md.
func namesTable(t *testing.T) (lines []names) {
	t.Helper()
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| in the log | in OpenTelemetry | what |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("there is no table of names")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		name := func(cell string) string { return strings.Trim(cell, " `") }
		lines = append(lines, names{name(cells[1]), name(cells[2])})
	}
	return lines
}

// exportedNames returns the attributes that a collector and Prometheus receive when everything happens.
func exportedNames(t *testing.T) map[string]bool {
	t.Helper()
	service, all := newScraped(t), make(map[string]bool)
	spans, _, _ := traced(t, otelfencepost.Options{SpanResources: true, MeterProvider: service.provider})
	escaped := make(map[string]bool)
	for _, list := range spans {
		for _, s := range list {
			addNames(all, s)
		}
	}
	for name := range all {
		escaped[strings.ReplaceAll(name, ".", "_")] = true
	}
	_, metrics := service.fetch(t)
	for _, m := range metrics {
		for label := range m.labels {
			if label != "le" && !strings.HasPrefix(label, "otel_scope_") && !escaped[label] {
				t.Errorf("no span has the attribute %s of %s", label, m.name)
			}
		}
	}
	return all
}

func addNames(all map[string]bool, s *trace.Span) {
	for name := range attributes(s) {
		all[name] = true
	}
	for _, event := range s.Events {
		for _, a := range event.Attributes {
			all[a.Key] = true
		}
	}
}

// keysOfLogs returns the keys that the library passes to its logger, out of its source.
func keysOfLogs(t *testing.T) map[string]bool {
	t.Helper()
	keys, calls := make(map[string]bool), 0
	for _, folder := range []string{"..", "../lease", "../advisory"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				found := loggedKeys(n)
				for _, key := range found {
					keys[key] = true
				}
				calls += min(1, len(found))
				return true
			})
		}
	}
	if calls < 10 {
		t.Errorf("%d calls of a logger were found: the test shows too little", calls)
	}
	return keys
}

// loggedKeys returns the keys of a call of a Logger, or of the list attrs that is made for one.
func loggedKeys(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.CallExpr:
		method, _ := n.Fun.(*ast.SelectorExpr)
		if method == nil {
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "append" && isAttrs(n.Args[0]) {
				return literals(n.Args[1:])
			}
			return nil
		}
		if on, ok := method.X.(*ast.SelectorExpr); !ok || on.Sel.Name != "Logger" {
			return nil
		}
		if method.Sel.Name == "Log" { // with a context and a level before the message
			return literals(n.Args[3:])
		}
		return literals(n.Args[1:])
	case *ast.AssignStmt:
		if list, ok := n.Rhs[0].(*ast.CompositeLit); ok && isAttrs(n.Lhs[0]) {
			return literals(list.Elts)
		}
	}
	return nil
}

func isAttrs(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "attrs"
}

// literals returns the strings at the places of keys: the first of each pair.
func literals(args []ast.Expr) (keys []string) {
	for i := 0; i < len(args); i += 2 {
		if text, ok := args[i].(*ast.BasicLit); ok && text.Kind == token.STRING {
			key, _ := strconv.Unquote(text.Value)
			keys = append(keys, key)
		}
	}
	return keys
}
