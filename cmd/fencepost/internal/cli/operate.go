package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

// jsonFlag asks for JSON.
type jsonFlag struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// on runs fn on the site that the flags name.
func (f *serverFlags) on(ctx context.Context, fn func(*operate.Site) error) error {
	s, err := f.open(ctx)
	if err != nil {
		return err
	}
	site, err := operate.NewSite(s.pool, s.clients, s.namespace)
	if err == nil {
		err = asRefused(fn(site))
	}
	return errors.Join(err, s.close())
}

// onDatabase is on for commands that need no Redis.
func onDatabase(ctx context.Context, d databaseFlags, n namespaceFlags, fn func(*operate.Site) error) error {
	f := serverFlags{databaseFlags: d, namespaceFlags: n, Advisory: true}
	return f.on(ctx, fn)
}

// asRefused gives what was refused its exit status.
func asRefused(err error) error {
	if errors.Is(err, operate.ErrRefused) {
		return refused(err)
	}
	return err
}

// printTable prints rows in columns.
func (s *streams) printTable(rows [][]string) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // into memory
	}
	if err := w.Flush(); err != nil {
		return err
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return s.printf("%s", strings.Join(lines, "\n"))
}

// printMore says how to see the rest of a list.
func (s *streams) printMore(more bool, how string) error {
	if !more {
		return nil
	}
	return s.printf("… there are more: %s\n", how)
}

// shown is a text from somebody else's hand, on one line, without control characters and in its own direction.
func shown(text string) string { return board.Shown(text) }

// when prints a time.
func when(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// short rounds a duration for people.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
