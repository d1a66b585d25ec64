package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pause stops the victim's process between reading and writing, for longer than its lease lasts, and until others have taken over. Modes in which
// they cannot, such as those with locks in PostgreSQL, wait for twice the TTL. The proof is the kernel's word that the process was stopped.
func pause(ctx context.Context, s *Scene) error {
	e, err := s.stopped(ctx)
	if err != nil {
		return err
	}
	err = s.overtaken(ctx, e, s.TTL*9/8, s.TTL*2)
	return errors.Join(err, s.victim().Resume())
}

// clockStep is how far a clock jumps.
const clockStep = time.Hour

// jumpClock has the victim's wall clock jump by an hour while it is between reading and writing, and back an hour while it is there again. The
// proof is that the victim announces its next points: orders travel in line, so it has read those about the clock.
func jumpClock(ctx context.Context, s *Scene) error {
	for _, step := range []time.Duration{clockStep, -clockStep} {
		if _, err := s.announced(ctx); err != nil {
			return err
		}
		if err := s.victim().StepClock(step); err != nil {
			return fmt.Errorf("step the clock of worker %d: %w", s.Victim, err)
		}
		if err := s.goOn(); err != nil {
			return err
		}
	}
	if _, err := s.announced(ctx); err != nil {
		return err
	}
	return s.goOn()
}
