package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settingsVariable names the file in the environment.
const settingsVariable = "FENCEPOST_SETTINGS"

// settingsFlag is the flag that names the file.
type settingsFlag string

// settingsFile has the settings of a file: lines NAME=VALUE with the names of the environment's variables, as systemd's
// EnvironmentFile and docker's --env-file have them, so that a service and this program may share one. Flags and the
// environment come first.
type settingsFile struct{ values map[string]string }

// BeforeResolve reads the file that the flag names, in the place of the one that the environment names.
func (settingsFlag) BeforeResolve(s *settingsFile, selected *kong.Context, at *kong.Path) error {
	path, _ := selected.FlagValue(at.Flag).(settingsFlag)
	if err := s.read(string(path)); err != nil {
		return err
	}
	return s.check(selected.Model)
}

func (s *settingsFile) read(path string) error {
	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return fmt.Errorf("--settings: %w", err)
	}
	defer func() { _ = file.Close() }()
	if s.values, err = parseSettings(file); err != nil {
		return fmt.Errorf("--settings: %s: %w", path, err)
	}
	return nil
}

// parseSettings reads lines. Its errors quote none of them, because they may hold passwords.
func parseSettings(from io.Reader) (map[string]string, error) {
	values := map[string]string{}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || name == "" || strings.ContainsAny(name, " \t'\"") {
			return nil, fmt.Errorf("line %d is not NAME=VALUE", n)
		}
		if q := value; len(q) > 0 && (q[0] == '"' || q[0] == '\'') {
			if len(q) < 2 || q[len(q)-1] != q[0] {
				return nil, fmt.Errorf("line %d: the quote does not end", n)
			}
			value = q[1 : len(q)-1]
		}
		values[name] = value
	}
	return values, lines.Err()
}

// check refuses a name that begins like ours and is none: it is misspelt.
func (s *settingsFile) check(app *kong.Application) error {
	known := variablesOf(app.Node)
	for name := range s.values {
		if strings.HasPrefix(name, "PG") {
			return fmt.Errorf("--settings: %s is read from the environment alone: name FENCEPOST_POSTGRES_URL", name)
		}
		if strings.HasPrefix(name, "FENCEPOST_") && !slices.Contains(known, name) {
			return fmt.Errorf("--settings: no setting is called %s", name)
		}
	}
	return nil
}

// Validate is a kong.Resolver's. It would come after the flags have been looked at, which is too late.
func (*settingsFile) Validate(*kong.Application) error { return nil }

// Resolve returns the value of a flag, unless the environment has one.
func (s *settingsFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	for _, name := range flag.Envs {
		if value, ok := s.values[name]; ok {
			return value, nil
		}
	}
	return nil, nil
}

// variablesOf returns the variables of all flags, and those that only the demo and the comparison read.
func variablesOf(node *kong.Node) []string {
	names := []string{"FENCEPOST_SERVICES", "FENCEPOST_REQUIRE"}
	for _, f := range node.Flags {
		names = append(names, f.Envs...)
	}
	for _, child := range node.Children {
		names = append(names, variablesOf(child)...)
	}
	return names
}
