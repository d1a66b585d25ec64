package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pause stops the victim's process between reading and writing, for longer than its lease lasts, and until others have taken over. Where
// nobody can, since the mode HoldsUp, that lasts for twice the TTL. The proof is the kernel's word that the process was stopped, and that
// it was overtaken; where the mode HoldsUp, the kernel's word alone.
func pause(ctx context.Context, s *Scene) error {
	e, err := s.stopped(ctx)
	if err != nil {
		return err
	}
	err = s.overtaken(ctx, e, s.TTL*9/8)
	return errors.Join(err, s.victim().Resume())
}

// clockStep is how far a clock jumps.
const clockStep = time.Hour

// jumpClock has the victim's wall clock jump by an hour while it is between reading and writing, and back an hour while it is there again. The
// proof is that by its next point, both times, the victim's mode has read the clock since it jumped.
func jumpClock(ctx context.Context, s *Scene) error {
	if _, err := s.announced(ctx); err != nil {
		return err
	}
	for _, step := range []time.Duration{clockStep, -clockStep} {
		if err := s.victim().StepClock(step); err != nil {
			return fmt.Errorf("step the clock of worker %d: %w", s.Victim, err)
		}
		if err := s.goOn(); err != nil {
			return err
		}
		e, err := s.announcedAgain(ctx)
		if err != nil {
			return err
		}
		if e.ClockReads == 0 {
			return fmt.Errorf("%w: worker %d did not read its clock after a jump of %v", ErrMissed, s.Victim, step)
		}
	}
	return s.goOn()
}
