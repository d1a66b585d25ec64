// Package complete answers a shell that completes a command line, from the model of the command line.
package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Words returns what may stand in the place of the last word, which may be empty or begun. The words before it are
// those after the program's name. Nothing means that the shell may offer what it likes, such as files.
func Words(program *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	node := program
	var value *kong.Flag // whose value comes next
	for _, word := range before {
		switch {
		case value != nil:
			value = nil
		case word == "--":
			return nil
		case strings.HasPrefix(word, "-"):
			if name, _, given := strings.Cut(word, "="); !given {
				value = takesValue(node, name)
			}
		default:
			child := commandOf(node, word)
			if child == nil {
				if node.Passthrough ||
					slices.ContainsFunc(node.Positional, func(p *kong.Positional) bool { return p.Passthrough }) {
					return nil // the words of another program
				}
				continue
			}
			node = child
		}
	}
	name, text, given := strings.Cut(last, "=")
	switch {
	case value != nil:
		return beginning(enumOf(value.Value), last)
	case strings.HasPrefix(last, "-") && given:
		return valuesOf(node, name, text)
	case strings.HasPrefix(last, "-"):
		return beginning(flagsOf(node), last)
	}
	return beginning(namesOf(node), last)
}

// flags are those of a command and of what it belongs to.
func flags(node *kong.Node) (all []*kong.Flag) {
	for _, group := range node.AllFlags(true) {
		all = append(all, group...)
	}
	return all
}

// takesValue returns the flag if the next word is its value.
func takesValue(node *kong.Node, word string) *kong.Flag {
	for _, f := range flags(node) {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			if f.IsBool() || f.IsCounter() {
				return nil
			}
			return f
		}
	}
	return nil
}

// valuesOf returns what may follow --flag=.
func valuesOf(node *kong.Node, name, begun string) []string {
	f := takesValue(node, name)
	if f == nil {
		return nil
	}
	values := beginning(enumOf(f.Value), begun)
	for i := range values {
		values[i] = name + "=" + values[i]
	}
	return values
}

func flagsOf(node *kong.Node) []string {
	names := []string{"--help"}
	for _, f := range flags(node) {
		names = append(names, "--"+f.Name)
	}
	return names
}

func namesOf(node *kong.Node) (names []string) {
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	for _, p := range node.Positional {
		names = append(names, enumOf(p)...)
	}
	return names
}

func commandOf(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word || slices.Contains(child.Aliases, word) {
			return child
		}
	}
	return nil
}

func enumOf(v *kong.Value) []string {
	return slices.DeleteFunc(v.EnumSlice(), func(text string) bool { return text == "" })
}

// beginning returns those that begin with a text, sorted, each once.
func beginning(words []string, text string) []string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, text) })
	slices.Sort(words)
	return slices.Compact(words)
}
