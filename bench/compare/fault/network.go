package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/faults"
)

// cutRedis cuts the victim off from all its Redis servers while it is between reading and writing. Nothing that it
// sends arrives, and nothing tells it so. Its work lasts as long as the cut, which is longer than the TTL, until others
// have taken over. Then the victim writes, and the cut is healed. The proof is that there were connections to cut, and
// that the victim was overtaken: no mode with a Redis HoldsUp.
func cutRedis(ctx context.Context, s *Scene) error {
	e, err := s.announced(ctx)
	if err != nil {
		return err
	}
	proxies := s.Redis[s.Victim]
	if err := hang(proxies...); err != nil {
		return err
	}
	defer resume(proxies...)
	if err := s.overtaken(ctx, e, s.TTL*9/8); err != nil {
		return err
	}
	return s.goOn()
}

// cutPostgres cuts the victim off from PostgreSQL when it is about to write. What it sends arrives when the cut is
// healed, after more than the TTL. The proof is that there were connections to cut, and that the victim completed
// nothing meanwhile.
func cutPostgres(ctx context.Context, s *Scene) error {
	if _, err := s.announced(ctx); err != nil {
		return err
	}
	proxy := s.Postgres[s.Victim]
	if err := hang(proxy); err != nil {
		return err
	}
	defer resume(proxy)
	before := s.History.Times(s.Victim, nil)
	if err := errors.Join(s.goOn(), wait.For(ctx, s.TTL*3/2)); err != nil {
		return err
	}
	if done := s.History.Times(s.Victim, nil) - before; done > 0 {
		return fmt.Errorf("%w: worker %d got %d operations done while it was cut off", ErrMissed, s.Victim, done)
	}
	return nil
}

func hang(proxies ...*faults.Proxy) error {
	links := 0
	for _, p := range proxies {
		links += p.Links()
		p.Hang()
	}
	if links == 0 {
		resume(proxies...)
		return fmt.Errorf("%w: there was no connection to cut", ErrMissed)
	}
	return nil
}

func resume(proxies ...*faults.Proxy) {
	for _, p := range proxies {
		p.Resume()
	}
}

// loseCommitReply lets the victim's next COMMIT through, and closes its connection when PostgreSQL replies that it was
// carried out. The proof is that reply.
func loseCommitReply(ctx context.Context, s *Scene) error {
	if _, err := s.announced(ctx); err != nil {
		return err
	}
	proxy := s.Postgres[s.Victim]
	lost := proxy.DropNextReplyThat(faults.Committed())
	defer proxy.Heal()
	if err := s.goOn(); err != nil {
		return err
	}
	bounded, cancel := s.patiently(ctx, "PostgreSQL answered no COMMIT")
	defer cancel()
	select {
	case <-lost:
		return nil
	case <-bounded.Done():
		return context.Cause(bounded)
	}
}
