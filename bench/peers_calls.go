package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

// The targets of calls that nobody contends.
const (
	leastOfRedislock    = 1.0
	leastOfRedsync      = 1.4
	leastOfRedsyncOfAll = 1.5
)

func measureCalls(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) ([]figure.Figure, error) {
	const what = "acquire and release"
	title := fmt.Sprintf(what+": %d goroutines of one process, each on a name of its own", clients)
	result, err := compareCalls(ctx, o, title, peers.Single(s))
	if err != nil {
		return nil, err
	}
	figures := callFigures(result, what, []wish{
		{peers.Fencepost, peers.Redislock, leastOfRedislock}, {peers.Fencepost, peers.Redsync, leastOfRedsync},
	})
	return figures, callTable(w, result)
}

func measureQuorum(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) ([]figure.Figure, error) {
	const what = "acquire and release on a quorum"
	title := fmt.Sprintf(what+" of %d servers: %d goroutines, as above", nodes, clients)
	result, err := compareCalls(ctx, o, title, peers.Quorum(s))
	if err != nil {
		return nil, err
	}
	figures := callFigures(result, what, []wish{{peers.FencepostOfAll, peers.RedsyncOfAll, leastOfRedsyncOfAll}})
	return figures, callTable(w, result)
}

func compareCalls(
	ctx context.Context,
	o *peersSuite,
	title string,
	all []peers.Peer,
) (result measure.Result, err error) {
	err = withClients(ctx, all, peers.OpenTogether, func(c [][]peers.Client) (err error) {
		comparison := measure.Comparison{Title: title}
		for i, p := range all {
			comparison.Candidates = append(comparison.Candidates, measure.Candidate{
				Name: p.Name, Worker: func(worker int) func(context.Context) error { return lockAndUnlock(c[i][worker], worker) },
			})
		}
		result, err = measure.Compare(ctx, o.callsPlan(), comparison)
		return err
	})
	return result, err
}

func lockAndUnlock(c peers.Client, worker int) func(context.Context) error {
	name := fmt.Sprintf("worker-%d", worker)
	return func(ctx context.Context) error {
		unlock, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return unlock(ctx)
	}
}

func callTable(w io.Writer, r measure.Result) error {
	var lines []string
	for _, s := range r.Series {
		lines = append(lines, fmt.Sprintf("%.0f\t%.3f\t%.0f\t   %s",
			s.Rate().Median, s.Ratio(r.Series[0]).Median, s.Allocs().Median, s.Name))
	}
	return figure.Table(w, r.Title, "calls/s\tto the first\tallocs", lines)
}

// wish is how often one candidate should be called for each call of another.
type wish struct {
	name, against string
	least         float64
}

// callFigures returns each candidate's rate against the first one's, and those that were wished for.
func callFigures(r measure.Result, what string, wishes []wish) []figure.Figure {
	compare := func(x, y measure.Series) figure.Figure {
		return figure.New(x.Name+": "+what, "calls/s", x.Rate(), y.Name, x.Ratio(y))
	}
	var figures []figure.Figure
	for _, x := range r.Series {
		if !slices.ContainsFunc(wishes, func(w wish) bool { return w.name == x.Name && w.against == r.Series[0].Name }) {
			figures = append(figures, compare(x, r.Series[0]))
		}
	}
	for _, wish := range wishes {
		x, y := find(r, wish.name), find(r, wish.against)
		if x != nil && y != nil {
			figures = append(figures, compare(*x, *y).Should(figure.AtLeast, wish.least))
		}
	}
	return figures
}

func find(r measure.Result, name string) *measure.Series {
	i := slices.IndexFunc(r.Series, func(s measure.Series) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Series[i]
}
