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
	err := s.eachPage(ctx, func(page []Fence, more bool) (bool, error) {
		b.More = more
		return time.Now().Before(until), s.behind(ctx, page, &b)
	})
	return b, err
}

func (s *Site) behind(ctx context.Context, page []Fence, b *Behind) error {
	seen, err := s.lookAt(ctx, page)
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
