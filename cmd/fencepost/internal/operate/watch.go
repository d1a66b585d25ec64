package operate

import (
	"context"
	"slices"
	"strings"
	"time"
)

// What may change about a resource.
const (
	ChangedStanding = "standing"
	ChangedHolder   = "holder"
	ChangedToken    = "token"
	ChangedQueue    = "queue"
	ChangedFence    = "fence"
)

// Change says where a resource stands now, and what differs from the look before.
type Change struct {
	At       time.Time `json:"at"` // by this host's clock, once both servers had answered
	Resource string    `json:"resource"`
	Changed  []string  `json:"changed"` // empty for what the first look found
	Lease    Lease     `json:"lease"`
	Fence    *Fence    `json:"fence"` // nil if nobody has ever claimed
}

// Watch follows leases by looking again and again. What comes and goes between two looks is not seen, except for the
// token, which has risen then. It is not safe for concurrent use.
type Watch struct {
	site      *Site
	resources []string
	prefix    string // if there are no resources
	names     Names
	last      map[string]Sight // nil before the first look
}

// Watch follows the named resources or, without any, those that begin with a prefix and that somebody has a lease of.
// Of these it follows up to limit.
func (s *Site) Watch(resources []string, prefix string, limit int) *Watch {
	return &Watch{site: s, resources: resources, prefix: prefix, names: Names{Site: s, Prefix: prefix, Limit: limit}}
}

// Look returns what has changed since the last look, by name, and everything the first time. more says that there are
// resources beyond the limit.
func (w *Watch) Look(ctx context.Context) (changes []Change, more bool, err error) {
	names, more, err := w.follow(ctx)
	if err != nil {
		return nil, false, err
	}
	sights, err := w.site.Sights(ctx, names...)
	if err != nil {
		return nil, false, err
	}
	now, first := time.Now().UTC(), w.last == nil
	next := make(map[string]Sight, len(sights))
	for _, s := range sights {
		before, known := w.last[s.Resource]
		next[s.Resource] = s
		var changed []string
		switch {
		case first:
			changed = []string{}
		case known:
			changed = changesOf(before, s)
		default:
			changed = changesOf(Sight{}, s)
		}
		if first || len(changed) > 0 {
			changes = append(changes, Change{At: now, Resource: s.Resource, Changed: changed, Lease: s.Lease, Fence: s.Fence})
		}
	}
	w.last = next
	return changes, more, nil
}

// follow returns the names to look at: those that were asked for, or those that are there and those that were, until
// they have been seen free.
func (w *Watch) follow(ctx context.Context) (names []string, more bool, err error) {
	if len(w.resources) > 0 {
		return w.resources, false, nil
	}
	if names, more, err = w.names.List(ctx); err != nil {
		return nil, false, err
	}
	names = slices.Clone(names)
	for name, s := range w.last {
		if s.held() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), more, nil
}

// changesOf names what differs. A renewal changes nothing.
func changesOf(a, b Sight) []string {
	changed := []string{}
	for _, c := range []struct {
		what   string
		differ bool
	}{
		{ChangedStanding, a.Lease.Standing != b.Lease.Standing},
		{ChangedHolder, a.Lease.Label != b.Lease.Label || a.Lease.PID != b.Lease.PID},
		{ChangedToken, a.Lease.Token != b.Lease.Token},
		{ChangedQueue, a.Lease.Waiting != b.Lease.Waiting},
		{ChangedFence, a.fenceToken() != b.fenceToken()},
	} {
		if c.differ {
			changed = append(changed, c.what)
		}
	}
	return changed
}

// scanShare is the part of the time that may be spent on looking for names: one tenth.
const scanShare = 10

// scanAtMost bounds how many names are read to find those with a prefix.
const scanAtMost = 100_000

// Names lists the resources that somebody has a lease of, again and again. To find them, all keys of Redis are gone
// through, also those of others. So it does that again only after ten times as long as it took, and says the same until
// then. It is not safe for concurrent use.
type Names struct {
	Site   *Site
	Prefix string
	Limit  int

	names []string
	more  bool
	again time.Time
}

// List returns up to Limit names, sorted. more says that there are others.
func (n *Names) List(ctx context.Context) (names []string, more bool, err error) {
	began := time.Now()
	if began.Before(n.again) {
		return n.names, n.more, nil
	}
	names, more, err = n.Site.names(ctx, n.Prefix, n.Limit)
	if err != nil {
		return nil, false, err
	}
	n.names, n.more, n.again = names, more, time.Now().Add((scanShare-1)*time.Since(began))
	return names, more, nil
}

// names returns up to limit resources that begin with a prefix and that somebody has a lease of, sorted.
func (s *Site) names(ctx context.Context, prefix string, limit int) (names []string, more bool, err error) {
	most := limit
	if prefix != "" {
		most = scanAtMost
	}
	if s.redis != nil {
		names, more, err = s.redis.Scan(ctx, most)
	} else {
		names, more, err = s.lockedNames(ctx, most)
	}
	if err != nil {
		return nil, false, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, more, nil
}
