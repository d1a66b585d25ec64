package cli_test

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// output runs a program in the top folder of the repository and returns what it prints on standard output.
func output(ctx context.Context, t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "../../../.."
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, &said)
	}
	return strings.TrimSpace(string(out))
}

// What make build and make image make. One test follows the other, so that the second finds what the first has
// compiled.
func TestTheBuilds(t *testing.T) {
	t.Parallel()
	t.Run("the program is static and knows its commit", testStaticProgram)
	t.Run("the image runs alone", testImage)
}

// The program needs nothing from the machine that it runs on, and knows what it was built from.
func testStaticProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fencepost")
	output(t.Context(), t, "scripts/build.sh", path)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("it was built with %v", settings)
	}
	if runtime.GOOS == "linux" {
		file, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("it needs the libraries %q, %v", libraries, err)
		}
	}
	var v struct{ Version, Revision, Time string }
	if err := json.Unmarshal([]byte(output(t.Context(), t, path, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	head, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return // the sources came without git's history
	}
	if v.Revision != strings.TrimSpace(string(head)) || v.Time == "" || v.Version == "" || v.Version == "(devel)" {
		t.Errorf("it says that it is %+v, of the commit %s", v, head)
	}
}

// The image has the program and what it needs, and nothing else: it runs without a network, without rights and on a
// read-only file system.
func testImage(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "docker", "info").Run(); err != nil {
		testenv.Lacking(t, fmt.Errorf("no Docker engine answers: %w", err), services.WayDocker)
	}
	tag := fmt.Sprintf("fencepost-test:%d", os.Getpid())
	output(t.Context(), t, "scripts/tool-image.sh", tag)
	t.Cleanup(func() { output(context.Background(), t, "docker", "rmi", "--force", tag) })
	alone := []string{"run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", tag}
	if got := output(t.Context(), t, "docker", append(alone, "version")...); !strings.HasPrefix(got, "fencepost ") {
		t.Errorf("version: %s", got)
	}
	got := output(t.Context(), t, "docker", append(alone, "migrate", "sql", "--to=1")...)
	if !strings.Contains(got, "CREATE SCHEMA") {
		t.Errorf("migrate sql: %s", got)
	}
	if user := output(t.Context(), t, "docker", "inspect", "--format", "{{.Config.User}}", tag); user != "65532:65532" {
		t.Errorf("it runs as %s", user)
	}
	// The control: there is no shell in it.
	if err := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--entrypoint", "/bin/sh", tag).Run(); err == nil {
		t.Error("there is a shell in the image")
	}
}
