package reference

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// columns is the width of a line of Markdown in this repository.
const columns = 120

// Markdown returns the page. note says in a sentence where it comes from.
func Markdown(app *kong.Application, note string) string {
	var b strings.Builder
	all := sections(app.Node)
	fmt.Fprintf(&b, "# Command reference\n\n%s\n", wrap(note, columns))
	writeBlocks(&b, blocks(app.Help))
	b.WriteString("\n| command | what it does |\n| --- | --- |\n")
	for _, s := range all[1:] {
		if !s.isGroup {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", s.path, strings.ReplaceAll(s.path, " ", "-"), cell(s.help))
		}
	}
	for _, s := range all[1:] {
		if s.isGroup {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.path, wrap(prose(s.help), columns))
		fmt.Fprintf(&b, "```\n%s\n```\n", s.usage)
		writeBlocks(&b, s.detail)
		writeTables(&b, s)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// writeBlocks writes blocks, with an empty line before each.
func writeBlocks(b *strings.Builder, list []block) {
	for _, part := range list {
		if part.code {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", part.text)
		} else {
			fmt.Fprintf(b, "\n%s\n", wrap(prose(part.text), columns))
		}
	}
}

func writeTables(b *strings.Builder, s section) {
	if len(s.args) > 0 {
		b.WriteString("\n| argument | what it is |\n| --- | --- |\n")
		for _, a := range s.args {
			fmt.Fprintf(b, "| `%s` | %s |\n", a.name, cell(a.help))
		}
	}
	if len(s.flags) > 0 {
		b.WriteString("\n| flag | environment | what it does |\n| --- | --- | --- |\n")
		for _, f := range s.flags {
			environment := ""
			if f.environment != "" {
				environment = "`" + strings.ReplaceAll(f.environment, ", ", "`, `") + "`"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.ReplaceAll(f.name, "|", `\|`), environment, cell(f.help))
		}
	}
}

// prose keeps Markdown from reading a text as its own signs.
func prose(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`).Replace(text)
}

func cell(text string) string { return strings.ReplaceAll(prose(text), "|", `\|`) }
