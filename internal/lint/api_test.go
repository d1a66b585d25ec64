package lint_test

import (
	"flag"
	"fmt"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/api to what the packages export")

// public are the packages that a user of the library imports.
func public() []string {
	return []string{
		module,
		module + "/fence",
		module + "/lease",
		module + "/advisory",
		module + "/token",
		module + "/migrations",
		testKit,
		otelModule,
	}
}

// The public API changes only together with its record.
func TestTheExportedAPIIsTheRecordedOne(t *testing.T) {
	t.Parallel()
	exports := exportData(t, ".", slices.DeleteFunc(public(), func(path string) bool { return path == otelModule })...)
	maps.Copy(exports, exportData(t, "otelfencepost", otelModule))
	for _, path := range public() {
		t.Run(strings.TrimPrefix(path, module+"/"), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", "api", filepath.Base(path)+".txt")
			got := apiOf(importPackage(t, exports, path))
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			recorded := strings.Split(strings.TrimSpace(string(text)), "\n")
			if changes := difference(recorded, got); len(changes) > 0 {
				t.Errorf("%s exports something else than internal/lint/%s says (- gone, + new):\n%s\n"+
					"If this is meant: go test ./internal/lint -run TestTheExportedAPI -update", path,
					file, strings.Join(changes, "\n"))
			}
		})
	}
}

// The control: the comparison finds a removed name, an added name, and a changed signature.
func TestAChangeOfTheExportedAPIIsSeen(t *testing.T) {
	t.Parallel()
	got := apiOf(importPackage(t, exportData(t, ".", module+"/token"), module+"/token"))
	if changes := difference(got, got); len(changes) != 0 {
		t.Errorf("the same is told apart: %q", changes)
	}
	if changes := difference(
		append([]string{"func Gone()"}, got...),
		got,
	); !slices.Equal(
		changes,
		[]string{"- func Gone()"},
	) {
		t.Errorf("a name that went is told as %q", changes)
	}
	if changes := difference(got[1:], got); !slices.Equal(changes, []string{"+ " + got[0]}) {
		t.Errorf("a name that came is told as %q", changes)
	}
	changed := slices.Clone(got)
	changed[0] += " error"
	if changes := difference(changed, got); len(changes) != 2 {
		t.Errorf("a changed signature is told as %q", changes)
	}
}

// The record contains what its reader looks for: functions, constants, variables, fields, methods and methods of
// interfaces.
func TestTheRecordHasEachKindOfName(t *testing.T) {
	t.Parallel()
	got := strings.Join(apiOf(exampleOfAPI()), "\n")
	const want = `const C untyped int = 1
func F(n int)
type A = example.S
type I interface
type I: method M(n int)
type N int
type N: method String(n int)
type S struct
type S: field Shown int
type S: method Do(n int)
var V int`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// exampleOfAPI is a package with one name of each kind, and one that is not exported.
func exampleOfAPI() *types.Package {
	p, number := types.NewPackage("example.com/example", "example"), types.Typ[types.Int]
	signature := func(receiver *types.Var) *types.Signature {
		return types.NewSignatureType(
			receiver,
			nil,
			nil,
			types.NewTuple(types.NewVar(token.NoPos, p, "n", number)),
			nil,
			false,
		)
	}
	named := func(name string, underlying types.Type) *types.Named {
		n := types.NewNamed(types.NewTypeName(token.NoPos, p, name, nil), underlying, nil)
		p.Scope().Insert(n.Obj())
		return n
	}
	structure := named("S", types.NewStruct([]*types.Var{
		types.NewField(token.NoPos, p, "Shown", number, false), types.NewField(token.NoPos, p, "hidden", number, false),
	}, nil))
	pointer := types.NewVar(token.NoPos, p, "s", types.NewPointer(structure))
	structure.AddMethod(types.NewFunc(token.NoPos, p, "Do", signature(pointer)))
	structure.AddMethod(types.NewFunc(token.NoPos, p, "hide", signature(pointer)))
	n := named("N", number)
	n.AddMethod(types.NewFunc(token.NoPos, p, "String", signature(types.NewVar(token.NoPos, p, "n", n))))
	named("I", types.NewInterfaceType([]*types.Func{types.NewFunc(token.NoPos, p, "M", signature(nil))}, nil).Complete())
	named("hidden", number)
	for _, o := range []types.Object{
		types.NewConst(token.NoPos, p, "C", types.Typ[types.UntypedInt], constant.MakeInt64(1)),
		types.NewFunc(token.NoPos, p, "F", signature(nil)), types.NewVar(token.NoPos, p, "V", number),
	} {
		p.Scope().Insert(o)
	}
	alias := types.NewTypeName(token.NoPos, p, "A", nil)
	types.NewAlias(alias, structure)
	p.Scope().Insert(alias)
	return p
}

// exportData returns, by import path, the files in which the compiler records what packages and their dependencies
// export, of the module in a folder of the repository. They are compiled as this test is, with the race detector or
// without: the build cache has them then.
func exportData(t *testing.T, folder string, packages ...string) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	raced := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, raced) {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, packages...)...)
	cmd.Dir, cmd.Env = filepath.Join("../..", folder), append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return files
}

func importPackage(t *testing.T, exports map[string]string, path string) *types.Package {
	t.Helper()
	p, err := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	}).Import(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// apiOf returns what a package exports, one declaration a line, sorted.
func apiOf(p *types.Package) []string {
	var lines []string
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("const %s %s = %s", name, text(o.Type()), o.Val()))
		case *types.Var:
			lines = append(lines, "var "+name+" "+text(o.Type()))
		case *types.Func:
			lines = append(lines, function("func ", o))
		case *types.TypeName:
			lines = append(lines, typeLines(o)...)
		}
	}
	slices.Sort(lines)
	return lines
}

// typeLines returns a type's own line and one line for each exported field and method, including promoted methods. It
// lists the members of an alias only if its type is internal, because a user sees them through the alias only.
func typeLines(o *types.TypeName) []string {
	if !o.IsAlias() {
		own := "type " + o.Name() + parameters(o.Type()) + " " + kind(o.Type().Underlying())
		return append([]string{own}, members(o.Name(), o.Type())...)
	}
	aliased := types.Unalias(o.Type())
	lines := []string{"type " + o.Name() + " = " + text(aliased)}
	if n, ok := aliased.(*types.Named); ok && n.Obj().Pkg() != nil &&
		strings.Contains(n.Obj().Pkg().Path(), "/internal/") {
		lines = append(lines, members(o.Name(), aliased)...)
	}
	return lines
}

func members(name string, t types.Type) []string {
	var lines []string
	if s, ok := t.Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() {
				lines = append(lines, "type "+name+": field "+f.Name()+" "+text(f.Type()))
			}
		}
	}
	receiver := t
	if !types.IsInterface(t) {
		receiver = types.NewPointer(t)
	}
	for selection := range types.NewMethodSet(receiver).Methods() {
		if m, ok := selection.Obj().(*types.Func); ok && m.Exported() {
			lines = append(lines, function("type "+name+": method ", m))
		}
	}
	return lines
}

func kind(underlying types.Type) string {
	switch underlying.(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	default:
		return text(underlying)
	}
}

func parameters(t types.Type) string {
	named, ok := t.(*types.Named)
	if !ok || named.TypeParams().Len() == 0 {
		return ""
	}
	var all []string
	for p := range named.TypeParams().TypeParams() {
		all = append(all, p.Obj().Name()+" "+text(p.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func function(before string, f *types.Func) string {
	return before + f.Name() + strings.TrimPrefix(text(f.Type()), "func")
}

// text names packages by their names, as a reader of the code knows them.
func text(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Name() })
}

// difference returns the recorded lines that no longer exist, and the new lines, in the order of the names.
func difference(recorded, got []string) []string {
	var changes []string
	for _, line := range recorded {
		if !slices.Contains(got, line) {
			changes = append(changes, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(recorded, line) {
			changes = append(changes, "+ "+line)
		}
	}
	slices.SortFunc(changes, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return changes
}
