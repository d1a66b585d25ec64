package services

import "context"

// Found is the result of Probe.
type Found struct {
	Way Way   // the way that would work; "" with Err
	Err error // why none would work; names each way
	// Passed are the ways tried before Way that would not work.
	Passed []Attempt
}

// Probe reports what [Start] would use, without the more expensive half of a start. Servers named by address are asked.
// For the other ways a Redis is started and stopped, and PostgreSQL's image or program must exist. Ctx bounds the call.
func Probe(ctx context.Context) Found {
	var found Found
	found.Passed, found.Err = eachWay(ctx, startOrder, func(w Way) error {
		found.Way = w
		return probeWay(ctx, w)
	})
	if found.Err != nil {
		found.Way = ""
	}
	return found
}

func probeWay(ctx context.Context, w Way) error {
	if w == WayURL {
		_, err := fromURLs(ctx)
		return err
	}
	h, _, err := startHost(ctx, request{Op: opProbe, Way: w})
	if err != nil {
		return err
	}
	return h.close()
}
