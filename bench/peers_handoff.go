package main

import (
	"context"
	"fmt"
	"io"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/handoff"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

// The targets of the hand-off.
const (
	mostOfAdvisory    = 1.5  // the median hand-off
	leastOfAdvisory   = 0.95 // acquisitions per second
	mostOfRueidislock = 1.0  // the median hand-off
	mostUnfair        = 1.1  // acquisitions of the luckiest client to the unluckiest
)

func median(s handoff.Sample) float64 { return s.Median }
func slow(s handoff.Sample) float64   { return s.Slow }
func rate(s handoff.Sample) float64   { return s.Rate }
func most(s handoff.Sample) float64   { return s.Most }

func measureHandoff(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) ([]figure.Figure, error) {
	series, err := compareHandoff(ctx, o, append(peers.Single(s), peers.OfMessage(s)))
	if err != nil {
		return nil, err
	}
	locks, message := series[:len(series)-1], series[len(series)-1]
	title := fmt.Sprintf("hand-off: %d clients with their own connections want one name, hold it %v, pause %v\n"+
		"from just before the holder's release to the next one's acquire returning; redislock and redsync poll every %v\n"+
		"max/min: turns of the luckiest client to those of the unluckiest; stranded: "+
		"left waiting for a lock that nobody held",
		clients, hold, pause, peers.PollEvery)
	figures := append(handoffFigures(locks), compareHands(message, locks[0], "hand-off p50", "ms", median),
		compareHands(locks[len(locks)-1], message, "hand-off p50", "ms", median),
		compareHands(message, locks[0], "acquisitions on one name", "acquired/s", rate))
	return figures, handoffTable(w, title, series)
}

func compareHandoff(ctx context.Context, o *peersSuite, all []peers.Peer) (series []handoff.Series, err error) {
	err = withClients(ctx, all, peers.OpenApart, func(c [][]peers.Client) (err error) {
		var candidates []handoff.Candidate
		for i, p := range all {
			candidates = append(candidates, handoff.Candidate{Name: p.Name, Clients: locks(c[i], "one")})
		}
		series, err = handoff.Compare(ctx, o.handoffPlan(), candidates)
		return err
	})
	return series, err
}

func locks(clients []peers.Client, name string) []handoff.Lock {
	var all []handoff.Lock
	for _, c := range clients {
		all = append(all, func(ctx context.Context) (func(context.Context) error, error) {
			unlock, err := c.Lock(ctx, name)
			return unlock, err
		})
	}
	return all
}

func handoffTable(w io.Writer, title string, series []handoff.Series) error {
	var lines []string
	for _, x := range series {
		stranded := 0
		for _, sample := range x.Samples {
			stranded += sample.Stranded
		}
		lines = append(lines, fmt.Sprintf("%.3f\t%.3f\t%.0f\t%.3f\t%d\t   %s",
			x.Spread(median).Median, x.Spread(slow).Median, x.Spread(rate).Median, x.Spread(most).Median, stranded, x.Name))
	}
	return figure.Table(w, title, "p50 ms\tp90 ms\tacquired/s\tmax/min\tstranded", lines)
}

// handoffFigures compares each series with the first, and the last, which is ours, with those between.
func handoffFigures(series []handoff.Series) []figure.Figure {
	var figures []figure.Figure
	baseline, ours := series[0], series[len(series)-1]
	for _, x := range series {
		p50 := compareHands(x, baseline, "hand-off p50", "ms", median)
		often := compareHands(x, baseline, "acquisitions on one name", "acquired/s", rate)
		shares := equalShares(x)
		if x.Name == ours.Name {
			p50, often = p50.Should(figure.AtMost, mostOfAdvisory), often.Should(figure.AtLeast, leastOfAdvisory)
			shares = shares.Should(figure.AtMost, mostUnfair)
		}
		figures = append(figures, p50, compareHands(x, baseline, "hand-off p90", "ms", slow), often, shares)
	}
	for _, peer := range series[1 : len(series)-1] {
		p50 := compareHands(ours, peer, "hand-off p50", "ms", median).Should(figure.Below, 1)
		if peer.Name == peers.Rueidislock {
			p50 = p50.Should(figure.AtMost, mostOfRueidislock)
		}
		figures = append(figures, p50, compareHands(ours, peer, "hand-off p90", "ms", slow).Should(figure.Below, 1))
	}
	return figures
}

func compareHands(
	x, y handoff.Series,
	what, unit string,
	of func(handoff.Sample) float64,
) figure.Figure {
	return figure.New(x.Name+": "+what, unit, x.Spread(of), y.Name, x.Ratio(y, of))
}

func equalShares(x handoff.Series) figure.Figure {
	shares := x.Spread(most)
	return figure.New(x.Name+": most to least acquisitions of a client", "", shares, "equal shares", shares)
}
