package main

import (
	"context"
	"errors"
	"io"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

// job is one comparison: it writes a table and returns its figures.
type job struct {
	name    string
	measure func(context.Context, *peersSuite, peers.Servers, io.Writer) ([]figure.Figure, error)
}

func jobs() []job {
	return []job{
		{name: "handoff", measure: measureHandoff},
		{name: "calls", measure: measureCalls},
		{name: "quorum", measure: measureQuorum},
		{name: "store", measure: measureStore},
		{name: "waiters", measure: measureWaiters},
		{name: "held", measure: measureHeld},
	}
}

func jobNames() []string {
	var names []string
	for _, j := range jobs() {
		names = append(names, j.name)
	}
	return names
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
