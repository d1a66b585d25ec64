package operate

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// Behind says how the counters in Redis stand against the fences.
type Behind struct {
	Fences  int  // looked at
	Below   int  // have a counter, and it is below
	Missing int  // have none, although the last claim is younger than counters are kept for
	More    bool // there are fences that were not looked at
}

// Behind compares counters with fences, for a while at most. A counter that expired because nobody was granted the
// lease for long is not missing.
func (s *Site) Behind(ctx context.Context, within time.Duration) (Behind, error) {
	var b Behind
	if s.redis == nil {
		return b, errors.New("advisory locks have no counters")
	}
	until := time.Now().Add(within)
	b.More = true
	for after := ""; b.More && time.Now().Before(until); {
		page, more, err := s.Fences(ctx, after, reseedPage)
		if err != nil {
			return b, err
		}
		if err := s.behind(ctx, page, &b); err != nil {
			return b, err
		}
		b.More = more
		if more {
			after = page[len(page)-1].Resource
		}
	}
	return b, nil
}

func (s *Site) behind(ctx context.Context, page []Fence, b *Behind) error {
	names := make([]string, len(page))
	for i, f := range page {
		names[i] = f.Resource
	}
	seen, err := s.redis.Look(ctx, names...)
	if err != nil {
		return err
	}
	b.Fences += len(page)
	for i, v := range seen {
		fence := max(page[i].Token, token.Token(1))
		switch {
		case v.Counter >= fence:
		case v.Counter > 0:
			b.Below++
		case time.Since(page[i].ClaimedAt) < counterIdle:
			b.Missing++
		}
	}
	return nil
}
