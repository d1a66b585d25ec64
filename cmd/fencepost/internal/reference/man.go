package reference

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Man returns the man page, in the macros of man(7).
func Man(app *kong.Application) string {
	var b strings.Builder
	all := sections(app.Node)
	about := blocks(app.Help)
	first, _, _ := strings.Cut(about[0].text, ". ")
	fmt.Fprintf(&b, ".TH FENCEPOST 1\n.SH NAME\nfencepost \\- %s\n", roff(strings.TrimSuffix(first, ".")))
	b.WriteString(".SH SYNOPSIS\n")
	for _, s := range all[1:] {
		if !s.isGroup {
			fmt.Fprintf(&b, ".B %s\n.br\n", roff(s.usage))
		}
	}
	b.WriteString(".SH DESCRIPTION\n")
	writeRoff(&b, about)
	b.WriteString(".SH COMMANDS\n")
	for _, s := range all[1:] {
		if s.isGroup {
			continue
		}
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(s.path), roff(s.help))
		writeRoff(&b, s.detail)
		for _, e := range append(s.args, s.flags...) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e.name), roff(e.help))
			if e.environment != "" {
				fmt.Fprintf(&b, "Environment: %s.\n", roff(e.environment))
			}
		}
	}
	return b.String()
}

func writeRoff(b *strings.Builder, list []block) {
	for _, part := range list {
		if !part.code {
			fmt.Fprintf(b, ".PP\n%s\n", roff(part.text))
			continue
		}
		b.WriteString(".PP\n.nf\n")
		for line := range strings.SplitSeq(part.text, "\n") {
			fmt.Fprintf(b, "%s\n", roff(line))
		}
		b.WriteString(".fi\n")
	}
}

// roff spells a line so that no part of it is a request or an escape.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}
