package cli

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/complete"
)

// completionCommands are the one for people, and the hidden one that the shells ask.
type completionCommands struct {
	Completion completionCommand `cmd:"" help:"Print the script with which a shell completes this program's commands and flags."`
	Complete   completeCommand   `cmd:"" hidden:"" help:"Print how a command line may go on."`
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help says where the script goes.
func (*completionCommand) Help() string {
	return `Commands and flags are completed, and those values of flags that are words of this program; no server is asked.

Examples:

  fencepost completion bash > /etc/bash_completion.d/fencepost
  fencepost completion zsh > "${fpath[1]}/_fencepost"
  fencepost completion fish > ~/.config/fish/completions/fencepost.fish`
}

// scripts are those of the shells. Each asks this program, and falls back on names of files.
func scripts() map[string]string {
	return map[string]string{
		"bash": `_fencepost() {
	local line="${COMP_LINE:0:COMP_POINT}" words
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	local IFS=$'\n' last="${words[-1]}"
	COMPREPLY=($(fencepost complete -- "${words[@]:1}" 2>/dev/null))
	# bash takes = for the end of a word.
	[[ $last == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
}
complete -o default -F _fencepost fencepost
`,
		"zsh": `#compdef fencepost
_fencepost() {
	local -a found
	found=("${(@f)$(fencepost complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
if [[ "$funcstack[1]" == _fencepost ]]; then _fencepost "$@"; else compdef _fencepost fencepost; fi
`,
		"fish": `complete -c fencepost -a '(fencepost complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
	}
}

// Run prints the script.
func (c *completionCommand) Run(std *streams) error {
	script, ok := scripts()[c.Shell]
	if !ok {
		return errors.New("there is no such shell")
	}
	return std.printf("%s", script)
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints one word per line.
func (c *completeCommand) Run(std *streams, selected *kong.Context) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	var err error
	for _, word := range complete.Words(selected.Model.Node, words) {
		err = errors.Join(err, std.printf("%s\n", word))
	}
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
