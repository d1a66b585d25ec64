package board

import (
	"context"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Options say what is looked at.
type Options struct {
	Site      *operate.Site
	Namespace string
	Limit     int      // how many leases, at most
	Workers   []string // the addresses of workers' metrics, in Prometheus' format
}

// Board looks. It is not safe for concurrent use; its pages are.
type Board struct {
	o       Options
	names   operate.Names
	workers *workers
	since   time.Time
	looks   int
	seen    map[string]seen
	turns   []time.Duration // the latest, rememberTurns at most
	past    []moment        // of the last minute
	handed  int
	claims  int64
}

// seen is what was last known of a resource.
type seen struct {
	look      int
	token     token.Token
	claimed   token.Token
	claimedAt time.Time
	handOffs  int
	turn      time.Duration
}

// moment is where the counts stood.
type moment struct {
	at             time.Time
	handed         int
	claims, counts int64 // since the first look, and as PostgreSQL has it
}

const (
	lookWithin    = 30 * time.Second
	rateOver      = time.Minute
	rememberTurns = 1000
	rememberLooks = 30 // a resource that nobody has had a lease of for so many looks is forgotten
)

// New returns a board. It sends nothing yet.
func New(o Options) *Board {
	return &Board{
		o: o, names: operate.Names{Site: o.Site, Limit: o.Limit}, workers: newWorkers(o.Workers), seen: map[string]seen{},
	}
}

// Look looks once. The errors are those of the servers; workers that do not answer are no error. ctx bounds the call,
// and so do 30 seconds.
func (b *Board) Look(ctx context.Context) (*Page, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	began := time.Now()
	names, more, err := b.names.List(ctx)
	if err != nil {
		return nil, err
	}
	sights, err := b.o.Site.Sights(ctx, names...)
	if err != nil {
		return nil, err
	}
	pulse, err := b.o.Site.Pulse(ctx)
	if err != nil {
		return nil, err
	}
	page := &Page{Namespace: b.o.Namespace, More: more, Leases: []Row{}, Workers: b.workers.ask(ctx)}
	page.At = time.Now().UTC().Truncate(time.Millisecond)
	page.TookMS = time.Since(began).Milliseconds()
	if b.looks++; b.looks == 1 {
		b.since = page.At
	}
	page.Since = b.since
	for _, s := range sights {
		if s.Lease.Standing == lease.Free {
			continue // it has ended since it was found
		}
		row := b.row(s, pulse.Now)
		page.Leases = append(page.Leases, row)
		page.Totals.add(row)
	}
	b.forget()
	b.rates(&page.Totals, page.At, pulse)
	return page, nil
}

// row compares a sight with the one before it.
func (b *Board) row(s operate.Sight, now time.Time) Row {
	r := Row{
		Resource: s.Resource, Standing: s.Lease.Standing, Holder: s.Lease.Label, Token: s.Lease.Token,
		LeftMS: s.Lease.LeftMS, Waiting: s.Lease.Waiting, Overtaken: s.Overtaken(),
	}
	is := seen{look: b.looks}
	if s.Fence != nil {
		r.Fence, is.claimed, is.claimedAt = s.Fence.Token, s.Fence.Token, s.Fence.ClaimedAt
	}
	if r.Token == 0 && r.Standing == lease.Held {
		r.Token = r.Fence // an advisory lock has no number but that of its claim
	}
	if is.token = r.Token; r.Token != 0 && r.Token == r.Fence {
		r.HeldMS = max(1, now.Sub(is.claimedAt).Milliseconds()) // the transaction that claims may be younger than its clock
	}
	was, known := b.seen[s.Resource]
	is.handOffs, is.turn = was.handOffs, was.turn
	if is.token == 0 {
		is.token = was.token // reserved, for one who has no token yet
	}
	if known && is.token > was.token && was.token != 0 {
		is.handOffs++
		b.handed++
	}
	if known && was.claimed != 0 && is.claimed == was.claimed+1 {
		is.turn = max(is.claimedAt.Sub(was.claimedAt), time.Millisecond)
		b.turns = append(b.turns, is.turn)
		b.turns = b.turns[max(0, len(b.turns)-rememberTurns):]
	}
	b.seen[s.Resource] = is
	r.HandOffs, r.TurnMS = is.handOffs, is.turn.Milliseconds()
	return r
}

// forget drops what was last seen long ago, so that the memory is bounded.
func (b *Board) forget() {
	for name, was := range b.seen {
		if b.looks-was.look > rememberLooks {
			delete(b.seen, name)
		}
	}
}

// rates sets what is counted over time.
func (b *Board) rates(t *Totals, at time.Time, pulse operate.Pulse) {
	if n := len(b.past); n > 0 {
		// Statistics begin again at 0 after a crash.
		more := pulse.Claims - b.past[n-1].counts
		if more < 0 {
			more = pulse.Claims
		}
		b.claims += more
	}
	b.past = append(b.past, moment{at, b.handed, b.claims, pulse.Claims})
	for len(b.past) > 2 && at.Sub(b.past[1].at) >= rateOver {
		b.past = b.past[1:]
	}
	t.HandOffs, t.Claims, t.Fences = b.handed, b.claims, pulse.Fences
	if minutes := at.Sub(b.past[0].at).Minutes(); minutes > 0 {
		t.HandOffsPerMinute = float64(b.handed-b.past[0].handed) / minutes
		t.ClaimsPerMinute = float64(b.claims-b.past[0].claims) / minutes
	}
	if len(b.turns) > 0 {
		sorted := slices.Sorted(slices.Values(b.turns))
		t.TurnMS = sorted[len(sorted)/2].Milliseconds()
		t.LongestTurnMS = sorted[len(sorted)-1].Milliseconds()
	}
}
