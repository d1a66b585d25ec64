package lease

import (
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// What a grant that was handed over may be trusted for, by when it was made and when its message came. The reservation
// is 200 ms; times are in ms.
func TestAGrantCountsFromTheWaitersOwnRequest(t *testing.T) {
	t.Parallel()
	const kept = 200
	sent := clock.Instant{Time: time.Now()}
	for name, c := range map[string]struct {
		granted, received int64 // after the waiter's request: by the server's clock, and by ours
		server            string
		trusted           bool
	}{
		"at once":                           {granted: 5, received: 5, server: "a", trusted: true},
		"soon":                              {granted: 50, received: 60, server: "a", trusted: true},
		"too late to be confirmed in time":  {granted: 50, received: 160, server: "a"},
		"a message that took long":          {granted: 50, received: 95, server: "a"},
		"after its end":                     {granted: 50, received: 300, server: "a"},
		"the margin of a long wait is long": {granted: 15_000, received: 15_000, server: "a"},
		"another server, or one that was restarted": {granted: 5, received: 5, server: "b"},
		"a server that does not say":                {granted: 5, received: 5},
		"the server's clock was set back":           {granted: -5, received: 5, server: "a"},
		"the server's clock was set forward":        {granted: 500, received: 5, server: "a"},
	} {
		a := anchor{sent: sent, at: 1_000_000_000, server: "a"}
		if c.server == "" {
			a.server = ""
		}
		at := a.at + c.granted*1000
		now := clock.Instant{Time: sent.Time.Add(time.Duration(c.received) * time.Millisecond)}
		ttl, ok := a.ttl(handed{token: 1, at: at, ends: at + kept*1000, server: c.server}, now)
		if ok != c.trusted {
			t.Errorf("%s: trusted: %v", name, ok)
		}
		if want := time.Duration(c.granted+kept) * time.Millisecond; ok && ttl != want {
			t.Errorf("%s: ends %v after the request, want %v", name, ttl, want)
		}
	}
}

func TestOnlyAGrantIsReadAsOne(t *testing.T) {
	t.Parallel()
	if g, ok := parseHanded("7 1000 2000 abc"); !ok || g != (handed{token: 7, at: 1000, ends: 2000, server: "abc"}) {
		t.Errorf("got %+v, %v", g, ok)
	}
	for _, text := range []string{
		"", "7", "7 1000 2000", "7 1000 2000 abc more", "0 1000 2000 abc", "x 1000 2000 abc", "7 x 2000 abc", "7 1000 x abc",
		"7 2000 1000 abc", "-7 1000 2000 abc", "99999999999999999999 1000 2000 abc",
	} {
		if g, ok := parseHanded(text); ok {
			t.Errorf("%q: %+v", text, g)
		}
	}
}
