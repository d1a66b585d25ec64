package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/handoff"
	"github.com/fencepost-pg/fencepost/bench/held"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/bench/peers"
)

const (
	// mostGrowth is how much dearer one of many may be than one of few.
	mostGrowth = 1.3
	fewHeld    = 1000
	// callers acquire and release the leases that are held.
	callers = 64
	// mostWaiterRounds bounds the rounds in which many wait: each takes seconds until the last has had its turn.
	mostWaiterRounds = 4
)

// measureWaiters measures the hand-off of a lease that many want beside that of one that eight want.
func measureWaiters(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) (_ []figure.Figure, err error) {
	plan := o.handoffPlan()
	plan.Rounds, plan.Grace = min(plan.Rounds, mostWaiterRounds), time.Minute
	var candidates []handoff.Candidate
	var all []peers.Client
	defer func() { err = errors.Join(err, peers.CloseAll(all)) }()
	for _, waiters := range []int{clients, o.waiters} {
		opened, err := openSpread(ctx, peers.Single(s)[len(peers.Single(s))-1], waiters)
		all = append(all, opened...)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s, waiters: %d", peers.Fencepost, waiters)
		candidates = append(candidates, handoff.Candidate{Name: name, Clients: locks(opened, name)})
	}
	series, err := handoff.Compare(ctx, plan, candidates)
	if err != nil {
		return nil, err
	}
	few, many := series[0], series[1]
	title := fmt.Sprintf("hand-off, few waiters and many, in %d clients with their own connections; hold %v, pause %v",
		clients, hold, pause)
	return []figure.Figure{
		compareHands(few, few, "hand-off p50", "ms", median),
		compareHands(many, few, "hand-off p50", "ms", median).Should(figure.AtMost, mostGrowth),
	}, handoffTable(w, title, series)
}

// openSpread opens clients for n goroutines, spread over eight of what one process would open.
func openSpread(ctx context.Context, p peers.Peer, n int) (all []peers.Client, err error) {
	for i := range clients {
		opened, err := peers.OpenTogether(ctx, p, (n+i)/clients)
		if err != nil {
			return all, err
		}
		all = append(all, opened...)
	}
	return all, nil
}

// measureHeld measures what one of few leases costs while it is held, and one of many.
func measureHeld(ctx context.Context, o *peersSuite, s peers.Servers, w io.Writer) ([]figure.Figure, error) {
	var figures []figure.Figure
	var lines []string
	var few held.Sample
	for i, n := range []int{fewHeld, o.leases} {
		x, err := holdLeases(ctx, o, s, n)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			few = x
		}
		figures = append(figures, heldFigures(n, x, few, i > 0)...)
		lines = append(lines, fmt.Sprintf("%.0f\t%.3f\t%.1f\t   %s", x.Bytes, x.Renewals, x.CPU, heldName(n)))
	}
	title := fmt.Sprintf("leases held by one process for %v: memory, renewals in a third of that, and this process's "+
		"processor time for one of these", o.ttl)
	return figures, figure.Table(w, title, "bytes each\trenewals each\tµs a renewal", lines)
}

func holdLeases(ctx context.Context, o *peersSuite, s peers.Servers, n int) (x held.Sample, err error) {
	opts, err := redis.ParseURL(s.RedisURL)
	if err != nil {
		return x, errors.New("the Redis address cannot be parsed") // the parser's words may hold a password
	}
	client := redis.NewClient(opts)
	defer func() { err = errors.Join(err, client.Close()) }()
	return held.Measure(ctx, held.Plan{Client: client, Prefix: s.Prefix, TTL: o.ttl, Callers: callers}, n)
}

func heldName(n int) string { return fmt.Sprintf("%s, leases held: %d", peers.Fencepost, n) }

func heldFigures(n int, x, few held.Sample, many bool) []figure.Figure {
	compare := func(what, unit string, value, against float64) figure.Figure {
		f := figure.New(heldName(n)+": "+what, unit, once(value), heldName(fewHeld), once(value/max(against, 1e-9)))
		if many {
			f = f.Should(figure.AtMost, mostGrowth)
		}
		return f
	}
	return []figure.Figure{
		compare("memory", "bytes/lease", x.Bytes, few.Bytes),
		compare("renewals in a third of the TTL", "renewals/lease", x.Renewals, few.Renewals),
		compare("processor time", "µs/renewal", x.CPU, few.CPU),
	}
}

// once is the spread of what was measured once.
func once(x float64) measure.Spread { return measure.Spread{Low: x, Median: x, High: x} }
