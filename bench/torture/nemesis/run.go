package nemesis

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// Run breaks things for a while, one after the other, and returns when everything is healed. A fault that could not be
// done is noted with its error; so is one after which things could not be put right, and Run returns that error.
func Run(ctx context.Context, s *Stage, faults []Fault, d time.Duration) (struck []history.Fault, err error) {
	until := history.Now() + d
	for len(faults) > 0 && history.Now() < until {
		if err := wait.For(ctx, s.some(0.2, 1.5)); err != nil {
			return struck, err
		}
		f := faults[s.Random.IntN(len(faults))]
		one := history.Fault{Name: f.Name, Began: history.Now()}
		one.Target, err = f.strike(ctx, s)
		one.Healed = history.Now()
		if err != nil {
			one.Error = err.Error()
		}
		struck = append(struck, one)
		if err != nil && !errors.Is(err, errMissed) {
			return struck, err
		}
	}
	return struck, nil
}

// errMissed: the fault found nothing to break, which may happen. Everything is as before.
var errMissed = errors.New("there was nothing to break")
