//go:build unix

package cli_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestWordsThatComplete(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"le":                           "lease ledger",
		"lease ":                       "handover ls release show watch",
		"lease --namespace x ":         "handover ls release show watch",
		"lease --namespace=x r":        "release",
		"lease release --f":            "--force",
		"lease release r --force --wa": "--wait",
		"top --sort ":                  "changes held name waiting",
		"top --sort=h":                 "--sort=held",
		"top --sort h":                 "held",
		"top --json --sort n":          "name",
		"completion ":                  "bash fish zsh",
		"completion z":                 "zsh",
		"--set":                        "--settings",
		"run -r x ./program --da":      "",
		"run -r x -- ./program --da":   "",
		"run -r ":                      "",
		"lease show r":                 "",
		"lease ls --database ":         "",
		"no-such-command --da":         "",
		"migrate sql --format ":        "atlas dbmate flyway golang-migrate goose plain",
		"demo-w":                       "",
		"lease watch --json --prefix a -": "--advisory --count --database --for --help --interval --json --limit " +
			"--namespace --prefix --redis --settings",
	} {
		words := strings.Split(line, " ")
		got := run(t, append([]string{"complete", "--"}, words...)...)
		if found := strings.Join(strings.Fields(got.out), " "); found != want || got.status != 0 || got.errOut != "" {
			t.Errorf("%q: %q, want %q (%+v)", line, found, want, got)
		}
	}
	if got := run(t, "complete"); got.status != 0 || !strings.Contains(got.out, "migrate\n") {
		t.Errorf("of nothing: %+v", got)
	}
}

// The script does what a shell needs. (zsh and fish are seldom installed; where they are, their scripts are read.)
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	folder := programFolder(t)
	shell := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	for _, name := range []string{"bash", "zsh", "fish"} {
		script := mustRun(t, "completion", name)
		if !strings.Contains(script, "fencepost complete -- ") {
			t.Errorf("%s: %s", name, script)
		}
		if _, err := exec.LookPath(name); err == nil {
			shell(name, "-n", "-c", script)
		}
	}
	for line, want := range map[string]string{
		"fencepost lease re":      "release",
		"fencepost top --sort=wa": "waiting", // bash has split the word at the =
		"fencepost completion f":  "fish",
		"fencepost lease show r":  "",
	} {
		out := shell("bash", "-c", mustRun(t, "completion", "bash")+
			`COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); `+
			`_fencepost; echo "${COMPREPLY[*]}"`, "bash", line)
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("bash: %q: %q, want %q", line, got, want)
		}
	}
	if got := run(t, "completion", "tcsh"); got.status != 2 {
		t.Errorf("%+v", got)
	}
}

// Every command of --help has examples in its own.
func TestEveryCommandHasExamples(t *testing.T) {
	t.Parallel()
	var groups []string
	seen := 0
	for _, command := range commandsOf(t) {
		help := mustRun(t, append(strings.Fields(command), "--help")...)
		if strings.Contains(help, "\nCommands:\n") {
			groups = append(groups, command)
			continue
		}
		seen++
		_, examples, found := strings.Cut(help, "Example")
		if !found || !strings.Contains(examples, "fencepost "+command) {
			t.Errorf("fencepost %s --help has no example", command)
		}
	}
	if seen < 20 || slices.Contains(groups, "top") {
		t.Errorf("%d commands were looked at: the test shows too little", seen)
	}
}
