package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

// job is one comparison: it writes a table and returns its figures.
type job struct {
	name    string
	measure func(context.Context, options, peers.Servers, io.Writer) ([]figure.Figure, error)
}

func jobs() []job {
	return []job{
		{name: "handoff", measure: measureHandoff},
		{name: "calls", measure: measureCalls},
		{name: "quorum", measure: measureQuorum},
	}
}

// opener is peers.OpenApart or peers.OpenTogether.
type opener func(context.Context, peers.Peer, int) ([]peers.Client, error)

// withClients runs fn with eight clients of each peer, in the order of the peers.
func withClients(ctx context.Context, of []peers.Peer, open opener, fn func([][]peers.Client) error) (err error) {
	var all [][]peers.Client
	defer func() {
		for _, c := range all {
			err = errors.Join(err, peers.CloseAll(c))
		}
	}()
	for _, p := range of {
		c, err := open(ctx, p, clients)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	return fn(all)
}

// table writes a title, a header and lines, whose cells are divided by tabs. The last cell is a name.
func table(w io.Writer, title, header string, lines []string) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", title); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range append([]string{header + "\t"}, lines...) {
		if _, err := fmt.Fprintf(t, "  %s\n", line); err != nil {
			return err
		}
	}
	return t.Flush()
}
