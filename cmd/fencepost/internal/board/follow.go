package board

import (
	"context"
	"time"
)

// Shot is where a board stands after a look.
type Shot struct {
	Page     *Page     // of the last look that succeeded; nil before the first one
	Problem  error     // of the last look; nil if it succeeded
	Since    time.Time // when the problem was first met
	Looks    int
	Failures int
}

// Follow looks again and again, with a pause of every in between, and shows what it found after each look. It returns
// nil when ctx ends, and the error of show. A look that fails is shown, and the next one follows.
func (b *Board) Follow(ctx context.Context, every time.Duration, show func(Shot) error) error {
	var shot Shot
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		page, err := b.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		shot.Looks++
		switch {
		case err == nil:
			shot.Page, shot.Problem, shot.Since = page, nil, time.Time{}
		case shot.Problem == nil:
			shot.Since = time.Now()
			fallthrough
		default:
			shot.Problem = err
			shot.Failures++
		}
		if err := show(shot); err != nil {
			return err
		}
		pause.Reset(every)
	}
}
