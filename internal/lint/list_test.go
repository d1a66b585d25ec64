package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// module is the path of the root module. The nested modules begin with it.
const module = "github.com/fencepost-pg/fencepost"

// pkg is what `go list` returns for one package, without test files.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// list returns the packages of the module in a folder of the repository, by import path. It reads that module's
// go.mod alone, also where the tests of several modules run in one workspace.
func list(t *testing.T, folder string, patterns ...string) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(
		t.Context(),
		"go",
		append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, patterns...)...)
	cmd.Dir = filepath.Join("../..", folder)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %q: %v: %s", folder, err, stderr.String())
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
