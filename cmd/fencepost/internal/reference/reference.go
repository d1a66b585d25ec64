// Package reference writes the documents about a command line from its model: a page of Markdown, and a man page.
package reference

import (
	"strings"

	"github.com/alecthomas/kong"
)

// section is one command, or the program itself.
type section struct {
	path    string // fencepost migrate up
	usage   string
	help    string
	detail  []block
	args    []entry
	flags   []entry
	isGroup bool // a command that only has commands
}

// entry is a flag or an argument.
type entry struct {
	name, environment, help string
}

// block is a paragraph, or lines of code.
type block struct {
	text string
	code bool
}

// sections returns the program and its commands, each after the command that it belongs to. Hidden ones are left out.
func sections(node *kong.Node) []section {
	s := section{
		path: node.FullPath(), usage: node.Summary(), help: node.Help, detail: blocks(node.Detail),
		isGroup: !node.Leaf() && node.Type != kong.ApplicationNode,
	}
	if !strings.HasPrefix(s.usage, "fencepost") {
		s.usage = "fencepost " + s.usage
	}
	for _, p := range node.Positional {
		s.args = append(s.args, entry{name: p.Summary(), help: p.Help})
	}
	for _, f := range node.Flags {
		if !f.Hidden && f.Name != "help" {
			s.flags = append(s.flags, entry{f.String(), strings.Join(f.Envs, ", "), sentence(f.Help)})
		}
	}
	list := []section{s}
	for _, child := range node.Children {
		if !child.Hidden {
			list = append(list, sections(child)...)
		}
	}
	return list
}

// sentence drops from a flag's help the variables that kong writes after it, because they have a column of their own.
func sentence(help string) string {
	before, _, _ := strings.Cut(help, " ($")
	return strings.TrimSuffix(before, ".") + "."
}

// blocks splits a text at its empty lines. Lines that begin with two spaces are code.
func blocks(text string) (list []block) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if part == "" {
			continue
		}
		if _, code := strings.CutPrefix(part, "  "); !code {
			list = append(list, block{text: strings.Join(strings.Fields(part), " ")})
			continue
		}
		lines := strings.Split(part, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "  ")
		}
		list = append(list, block{text: strings.Join(lines, "\n"), code: true})
	}
	return list
}

// wrap breaks a paragraph into lines of at most so many characters.
func wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len([]rune(word)) > width:
			b.WriteString("\n")
			at = 0
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len([]rune(word))
	}
	return b.String()
}
