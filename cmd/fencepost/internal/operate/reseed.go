package operate

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// counterIdle is for how long a Store's counters are kept after the last grant.
const counterIdle = 30 * 24 * time.Hour

// reseedPage is how many counters are raised at once.
const reseedPage = 500

// Reseeded says what Reseed did.
type Reseeded struct {
	Fences int `json:"fences"` // looked at
	Raised int `json:"raised"` // or, of a dry run, below
}

// Reseed raises the counters in Redis to the fences. It lowers none, so it may be repeated, and beside running workers.
// A store does the same for each resource at its next grant, which then costs one more round trip to each server. A dry
// run only counts. each, if not nil, is called from time to time.
func (s *Site) Reseed(ctx context.Context, dry bool, each func(Reseeded)) (Reseeded, error) {
	var done Reseeded
	if s.redis == nil {
		return done, errors.New("advisory locks have no counters: there is nothing to reseed")
	}
	err := s.eachPage(ctx, func(page []Fence, _ bool) (bool, error) {
		raised, err := s.reseed(ctx, page, dry)
		if err != nil {
			return false, err
		}
		done.Fences += len(page)
		done.Raised += raised
		if each != nil {
			each(done)
		}
		return true, nil
	})
	return done, err
}

// eachPage calls fn with the fences of the namespace, page by page, until one is the last, or fn returns false or an
// error. more says that a page follows.
func (s *Site) eachPage(ctx context.Context, fn func(page []Fence, more bool) (goOn bool, err error)) error {
	for after := ""; ; {
		page, more, err := s.Fences(ctx, after, reseedPage)
		if err != nil {
			return err
		}
		if goOn, err := fn(page, more); err != nil || !goOn || !more {
			return err
		}
		after = page[len(page)-1].Resource
	}
}

// lookAt returns what Redis knows of the fences' resources.
func (s *Site) lookAt(ctx context.Context, page []Fence) ([]lease.Sight, error) {
	names := make([]string, len(page))
	for i, f := range page {
		names[i] = f.Resource
	}
	return s.redis.Look(ctx, names...)
}

func (s *Site) reseed(ctx context.Context, page []Fence, dry bool) (int, error) {
	if dry {
		below, err := s.below(ctx, page)
		return len(below), err
	}
	floors := make([]lease.Floor, len(page))
	for i, f := range page {
		floors[i] = lease.Floor{Resource: f.Resource, Token: f.Token}
	}
	return s.redis.RaiseCounters(ctx, floors)
}

// below returns the fences whose counters are below them.
func (s *Site) below(ctx context.Context, page []Fence) ([]Fence, error) {
	seen, err := s.lookAt(ctx, page)
	var below []Fence
	for i, v := range seen {
		if v.Counter < max(page[i].Token, token.Token(1)) {
			below = append(below, page[i])
		}
	}
	return below, err
}
