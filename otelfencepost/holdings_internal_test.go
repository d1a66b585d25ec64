package otelfencepost

import (
	"strconv"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
)

func newHoldings() *holdings { return &holdings{resources: make(map[string]*history)} }

// at is a moment of a made-up clock.
func at(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

// granted is a lease that was asked for and granted at these seconds.
func granted(tok fencepost.Token, asked, since int) holding {
	return holding{token: tok, asked: at(asked), since: at(since)}
}

// The number of held leases is right in the end, in whatever order their begins and ends are reported.
func TestTheNumberOfHeldLeasesComesBackToZero(t *testing.T) {
	t.Parallel()
	held := time.Second
	for name, run := range map[string]func(h *holdings) (sum int64){
		"in order": func(h *holdings) int64 {
			n, _ := h.begin("r", granted(1, 0, 1))
			_, _, less := h.end("r", 1, &held)
			return n - less
		},
		"the end after the next begin": func(h *holdings) int64 {
			n, _ := h.begin("r", granted(1, 0, 1))
			m, _ := h.begin("r", granted(2, 0, 3))
			_, _, less := h.end("r", 1, nil)
			_, _, last := h.end("r", 2, &held)
			return n + m - less - last
		},
		"an end that is never told": func(h *holdings) int64 {
			n, _ := h.begin("r", granted(1, 0, 1))
			m, _ := h.begin("r", granted(2, 0, 3))
			_, _, less := h.end("r", 2, &held)
			return n + m - less
		},
		"a loss before the claim": func(h *holdings) int64 {
			_, _, less := h.end("r", 1, nil)
			return -less
		},
		"a token that was raised while it was held": func(h *holdings) int64 {
			n, _ := h.begin("r", granted(1, 0, 1))
			_, _, less := h.end("r", 7, &held)
			return n - less
		},
		"an end that is told twice": func(h *holdings) int64 {
			n, _ := h.begin("r", granted(1, 0, 1))
			_, _, less := h.end("r", 1, nil)
			if again, _, _ := h.end("r", 1, nil); again != nil {
				t.Error("the second end counts as well")
			}
			return n - less
		},
	} {
		if sum := run(newHoldings()); sum != 0 {
			t.Errorf("%s: %d leases are held", name, sum)
		}
	}
}

// A hand-off is the time from a release to a grant that was asked for before it, whichever of the two is reported
// first.
func TestAHandOffIsFoundInEitherOrder(t *testing.T) {
	t.Parallel()
	held := 4 * time.Second // from 1 to 5
	for name, tt := range map[string]struct {
		next  holding
		known bool
		took  time.Duration
	}{
		"a waiter":             {granted(2, 3, 6), true, time.Second},
		"asked for afterwards": {granted(2, 6, 7), false, 0},
		"looks earlier":        {granted(2, 3, 4), true, 0},
	} {
		for _, releaseFirst := range []bool{true, false} {
			h := newHoldings()
			h.begin("r", granted(1, 0, 1))
			var handed handOff
			if releaseFirst {
				h.end("r", 1, &held)
				_, handed = h.begin("r", tt.next)
			} else {
				h.begin("r", tt.next)
				_, handed, _ = h.end("r", 1, &held)
			}
			if handed.known != tt.known || handed.took != tt.took {
				t.Errorf("%s, release told first: %v: %v", name, releaseFirst, handed)
			}
		}
	}
	h := newHoldings()
	h.begin("r", granted(1, 0, 1))
	h.end("r", 1, nil)
	if _, handed := h.begin("r", granted(2, 0, 6)); handed.known {
		t.Error("a lost lease was handed over")
	}
}

// What has ended is forgotten at last, and what is held is not.
func TestTheMemoryOfEndedLeasesIsBounded(t *testing.T) {
	t.Parallel()
	h, held := newHoldings(), time.Second
	h.begin("held", granted(1, 0, 1))
	h.end("held", 1, &held)
	h.begin("held", granted(2, 2, 3))
	for i := range 3 * mostEnded {
		name := strconv.Itoa(i)
		h.begin(name, granted(1, 0, 1))
		h.end(name, 1, &held)
	}
	if n := len(h.resources); n > mostEnded+1 || len(h.ended) > mostEnded {
		t.Errorf("%d resources are remembered, %d in order", n, len(h.ended))
	}
	if l, _, less := h.end("held", 2, &held); l == nil || less != 1 {
		t.Error("a lease that is held was forgotten")
	}
}
