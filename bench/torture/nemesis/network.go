package nemesis

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/faults"
)

// way draws a worker and one of its relays, or all of them.
func (s *Stage) way() (string, []*faults.Proxy) {
	n := s.victim()
	all := append([]*faults.Proxy{s.ToPostgres[n]}, s.ToRedis[n]...)
	i := s.Random.IntN(len(all) + 1)
	switch {
	case i == len(all):
		return worker(n) + " to everything", all
	case i == 0:
		return worker(n) + " to PostgreSQL", all[:1]
	}
	return fmt.Sprintf("%s to %s", worker(n), redisName(i-1)), all[i : i+1]
}

// onNetwork breaks a way for a while.
func (s *Stage) onNetwork(ctx context.Context, d time.Duration, breaks func(*faults.Proxy)) (string, error) {
	name, proxies := s.way()
	for _, p := range proxies {
		breaks(p)
	}
	err := wait.For(ctx, d)
	for _, p := range proxies {
		p.Heal()
	}
	return name, err
}

func delay(ctx context.Context, s *Stage) (string, error) {
	d, by := s.some(0.5, 2), s.some(0.02, 0.5)
	return s.onNetwork(ctx, d, func(p *faults.Proxy) { p.Latency(by) })
}

// hangNetwork holds everything back: connections look alive, and what is sent arrives when the fault is over.
func hangNetwork(ctx context.Context, s *Stage) (string, error) {
	d := s.some(0.3, 2.5)
	return s.onNetwork(ctx, d, (*faults.Proxy).Hang)
}

// cut resets connections: all that are there, and often those that are made meanwhile.
func cut(ctx context.Context, s *Stage) (string, error) {
	d := s.some(0.1, 1.5)
	if s.Random.IntN(2) == 0 {
		return s.onNetwork(ctx, 0, (*faults.Proxy).CutOnce)
	}
	return s.onNetwork(ctx, d, (*faults.Proxy).Cut)
}

// loseCommit closes a worker's connection when PostgreSQL confirms its next COMMIT: it is committed, and the worker
// cannot know.
func loseCommit(ctx context.Context, s *Stage) (string, error) {
	n := s.victim()
	p := s.ToPostgres[n]
	lost := p.DropNextReplyThat(faults.Committed())
	defer p.Heal()
	timer := time.NewTimer(2 * s.TTL)
	defer timer.Stop()
	select {
	case <-lost:
		return worker(n), nil
	case <-timer.C:
		return worker(n), errMissed
	case <-ctx.Done():
		return worker(n), context.Cause(ctx)
	}
}
