package services

import "context"

// Found is what Probe found.
type Found struct {
	Way Way   // the way that would serve; "" with Err
	Err error // why none would; names each way
	// Passed are the ways that would not serve, tried before Way.
	Passed []Attempt
}

// Probe tells what [Start] would take, without the costlier half of a start:
// addresses are asked; elsewhere a Redis is started and stopped, and PostgreSQL's
// image or program must be there. Ctx bounds it.
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
