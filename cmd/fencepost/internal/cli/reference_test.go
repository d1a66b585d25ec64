package cli_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/cli.md, docs/fencepost.1 and the golden files")

// The documents about the command line agree with the commands' own help.
func TestTheReferenceIsCurrent(t *testing.T) {
	for format, path := range map[string]string{
		"markdown": "../../../../docs/cli.md",
		"man":      "../../../../docs/fencepost.1",
	} {
		want := mustRun(t, "reference", "--format", format)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the commands say. "+
				"Run in cmd/fencepost: go test ./internal/cli -run TestTheReferenceIsCurrent -update", path)
		}
	}
}

// Both documents have every command of --help, with each flag of that command's --help.
func TestTheReferenceHasEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	page, man := mustRun(t, "reference"), strings.ReplaceAll(mustRun(t, "reference", "--format=man"), `\-`, "-")
	_, own, _ := strings.Cut(mustRun(t, "--help"), "Flags:")
	own, _, _ = strings.Cut(own, "Commands:")
	for _, command := range commandsOf(t) {
		words := strings.Fields(command)
		_, section, found := strings.Cut(page, "\n## fencepost "+command+"\n")
		if !found || !strings.Contains(man, "\n.SS fencepost "+command+"\n") {
			t.Errorf("%q has no section", words)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		help := mustRun(t, append(words, "--help")...)
		_, flags, _ := strings.Cut(help, "Flags:")
		name := regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--(?:\[no-\])?([a-z-]+)`)
		for _, flag := range name.FindAllStringSubmatch(flags, -1) {
			// The flags of the program itself are those of each command, and are described once.
			if !strings.Contains(own, "--"+flag[1]) && (!strings.Contains(section, flag[1]) || !strings.Contains(man, flag[1])) {
				t.Errorf("%q: --%s is not in the reference", words, flag[1])
			}
		}
	}
	if head, _, _ := strings.Cut(page, "\n## fencepost compare\n"); !strings.Contains(head, "--settings") ||
		!strings.Contains(man, "--settings") {
		t.Error("the program's own flags are not in the reference")
	}
	// Nothing in the man page is a request that is not one of its own.
	for line := range strings.Lines(man) {
		if strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|B|br|nf|fi)\b`).MatchString(line) {
			t.Errorf("the man page has the request %q", line)
		}
	}
}

// commandsOf returns the commands of --help.
func commandsOf(t *testing.T) (commands []string) {
	t.Helper()
	command := regexp.MustCompile(`(?m)^  (?:fencepost )?([a-z]+(?: [a-z]+)*)`)
	_, list, _ := strings.Cut(mustRun(t, "--help"), "Commands:")
	for _, m := range command.FindAllStringSubmatch(list, -1) {
		commands = append(commands, m[1])
	}
	if len(commands) < 8 {
		t.Fatalf("--help has the commands %q: the test shows too little", commands)
	}
	return commands
}
