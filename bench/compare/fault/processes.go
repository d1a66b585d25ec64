package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pause stops the victim's process between reading and writing, for longer than its lease lasts, and until others have
// taken over. If nobody can, because the mode HoldsUp, the pause lasts for twice the TTL. The proof is that the kernel
// reports the process as stopped, and that the victim was overtaken. If the mode HoldsUp, the kernel's report alone is
// the proof.
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

// jumpClock moves the victim's wall clock forward by an hour while it is between reading and writing, and back by an
// hour when it is there again. The proof is that both times the victim's mode has read the clock between the jump and
// its next point.
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
