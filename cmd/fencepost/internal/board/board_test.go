package board_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// place is a namespace with a board on it.
type place struct {
	t         *testing.T
	pool      *pgxpool.Pool
	rdb       redis.UniversalClient
	namespace string
	board     *board.Board
}

func newPlace(t *testing.T, rdb redis.UniversalClient, limit int) *place {
	t.Helper()
	p := &place{t: t, pool: testenv.Pool(t), rdb: rdb, namespace: strings.ReplaceAll(testenv.Prefix(t), ":", "-")}
	var clients []redis.UniversalClient
	if rdb != nil {
		clients = append(clients, rdb)
	}
	site, err := operate.NewSite(p.pool, clients, p.namespace)
	if err != nil {
		t.Fatal(err)
	}
	p.board = board.New(board.Options{Site: site, Namespace: p.namespace, Limit: limit})
	return p
}

func (p *place) look() *board.Page {
	p.t.Helper()
	page, err := p.board.Look(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return page
}

// acquire holds a lease until the test ends, or until it is released.
func (p *place) acquire(resource, label string) *fencepost.Lease {
	p.t.Helper()
	o := &fencepost.Options{Namespace: p.namespace, Label: label}
	s, err := fencepost.NewAdvisory(p.pool, o)
	if p.rdb != nil {
		s, err = fencepost.New(p.pool, p.rdb, o)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := s.Acquire(p.t.Context(), resource, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func (p *place) release(l *fencepost.Lease) {
	p.t.Helper()
	if err := l.Release(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// again is a look once names are looked for again: a tenth of the time goes to that.
func (p *place) until(ask func(*board.Page) bool) *board.Page {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 60*time.Second)
	defer cancel()
	var page *board.Page
	if err := testenv.Until(ctx, func(context.Context) (bool, error) {
		page = p.look()
		return ask(page), nil
	}); err != nil {
		p.t.Fatalf("%v: %+v", err, page)
	}
	return page
}

func TestABoardSeesWhoHoldsAndHowLeasesChangeHands(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testenv.Redis(t), 100)
	if page := p.look(); len(page.Leases) != 0 || page.Totals.Held != 0 || page.More || page.Workers != nil {
		t.Errorf("of nothing: %+v", page)
	}
	a := p.acquire("r", "host-a/1")
	p.acquire("other", "host-a/1")
	page := p.until(func(page *board.Page) bool { return page.Totals.Held == 2 })
	r := page.Sorted("name")[1]
	if r.Resource != "r" || r.Holder != "host-a/1" || r.Token != 1 || r.Fence != 1 ||
		r.HeldMS < 1 ||
		r.LeftMS < 1 || r.Says() != "" ||
		r.HandOffs != 0 {
		t.Errorf("the lease: %+v", r)
	}
	p.release(a)
	p.acquire("r", "host-b/2")
	page = p.until(func(page *board.Page) bool { return page.Totals.HandOffs == 1 && page.Totals.TurnMS > 0 })
	r = page.Sorted("changes")[0]
	if r.Resource != "r" || r.Holder != "host-b/2" || r.HandOffs != 1 || r.TurnMS < 1 ||
		page.Totals.HandOffsPerMinute <= 0 ||
		page.Totals.LongestTurnMS != r.TurnMS ||
		!page.Since.Before(page.At) {
		t.Errorf("after the hand-off: %+v %+v", r, page.Totals)
	}
	// PostgreSQL counts three claims, when it gets to it.
	p.until(func(page *board.Page) bool {
		return page.Totals.Claims >= 3 && page.Totals.Fences >= 2 && page.Totals.ClaimsPerMinute > 0
	})

	conn, err := p.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c := fence.Claim{Resource: p.namespace + ":r", Token: 9, Nonce: token.NewNonce()}
	if err := fence.Raise(t.Context(), conn.Conn(), c, nil); err != nil {
		t.Fatal(err)
	}
	page = p.look()
	if r := page.Sorted("changes")[0]; page.Totals.Overtaken != 1 || !r.Overtaken || r.Says() != "overtaken" ||
		r.HeldMS != 0 {
		t.Errorf("overtaken: %+v %+v", r, page.Totals)
	}
}

func TestABoardCountsWaiters(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testenv.Redis(t), 100)
	p.acquire("a", "host-a/1")
	p.acquire("b", "host-a/1")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := fencepost.New(p.pool, p.rdb, &fencepost.Options{Namespace: p.namespace})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.Acquire(ctx, "b", nil)
			ended <- err
		}()
	}
	page := p.until(func(page *board.Page) bool { return page.Totals.Waiting == 2 })
	if page.Totals.WaitedFor != 1 || page.Sorted("waiting")[0].Resource != "b" ||
		page.Sorted("no order")[0].Resource != "b" ||
		page.Sorted("name")[0].Resource != "a" ||
		page.Sorted("held")[0].Resource != "a" {
		t.Errorf("%+v %+v", page.Totals, page.Leases)
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestABoardOfAdvisoryLocks(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil, 100)
	p.acquire("r", "host-a/1")
	page := p.until(func(page *board.Page) bool { return page.Totals.Held == 1 })
	if r := page.Leases[0]; r.Resource != "r" || r.Holder != "host-a/1" || r.Token != 1 || r.HeldMS < 1 || r.Overtaken {
		t.Errorf("%+v", r)
	}
}

// However many keys a Redis has, most of its time is left for others.
func TestNamesAreLookedForATenthOfTheTime(t *testing.T) {
	t.Parallel()
	own := testenv.OwnRedis(t)
	p := newPlace(t, testenv.RedisOn(t, own.URL()), 2)
	for _, r := range []string{"a", "b", "c"} {
		p.acquire(r, "host-a/1")
	}
	page := p.look()
	if len(page.Leases) != 2 || !page.More {
		t.Errorf("of three, with a limit of two: %+v", page)
	}
	site, err := operate.NewSite(p.pool, []redis.UniversalClient{p.rdb}, p.namespace)
	if err != nil {
		t.Fatal(err)
	}
	names := operate.Names{Site: site, Limit: 10}
	const asked = 1000
	for range asked {
		if list, more, err := names.List(t.Context()); err != nil || len(list) != 3 || more {
			t.Fatal(list, more, err)
		}
	}
	stats, err := p.rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, scans, _ := strings.Cut(stats, "cmdstat_scan:calls=")
	if scans, _, _ = strings.Cut(scans, ","); len(scans) == 0 || len(scans) > 2 {
		t.Errorf("%d questions sent %s SCANs", asked, scans)
	}
}

// A look that fails is shown with what was seen before it, and the board goes on.
func TestABoardOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	own := testenv.OwnRedis(t)
	p := newPlace(t, testenv.RedisOn(t, own.URL()), 100)
	p.acquire("r", "host-a/1")
	enough := errors.New("enough")
	var failed int
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	err := p.board.Follow(ctx, 10*time.Millisecond, func(s board.Shot) error {
		switch {
		case s.Looks == 1:
			if s.Problem != nil || s.Page == nil {
				t.Errorf("at first: %+v", s)
			}
			return own.Kill(ctx)
		case s.Problem != nil:
			if failed++; failed == 1 {
				if s.Page == nil || s.Failures != 1 || s.Since.IsZero() || !errors.Is(s.Problem, fencepost.ErrUnavailable) {
					t.Errorf("in the outage: %+v", s)
				}
				return own.Start(ctx)
			}
		case failed > 0:
			if !s.Since.IsZero() || s.Failures != failed {
				t.Errorf("after it: %+v", s)
			}
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}
