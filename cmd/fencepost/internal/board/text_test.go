package board_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/lease"
)

// billingPage is a page with all that one can show.
func billingPage() *board.Page {
	at := time.Date(2026, 12, 1, 2, 14, 5, 0, time.UTC)
	return &board.Page{
		At: at, Since: at.Add(-time.Minute), Namespace: "billing", More: true,
		Totals: board.Totals{
			Held:          2,
			Overtaken:     1,
			Other:         1,
			Waiting:       3,
			WaitedFor:     1,
			TurnMS:        1200,
			LongestTurnMS: 90_000,
			Fences:        7,
		},
		Workers: &board.Workers{Asked: 3, Answered: 2, Lost: 4, LostNew: 1, HandOffs: 9, HandOffMS: 1.25, HandOffP99MS: 40},
		Leases: []board.Row{
			{Resource: "a\x1b[31m\nb", Standing: lease.Held, Holder: "", Token: 7, LeftMS: 29_400, HeldMS: 4_000_000},
			{Resource: "b", Standing: lease.Held, Holder: "host", Token: 8, Waiting: 3, Overtaken: true},
			{Resource: "c", Standing: lease.Foreign},
		},
	}
}

func TestAPageAsText(t *testing.T) {
	t.Parallel()
	page := billingPage()
	at := page.At
	for name, tt := range map[string]struct {
		shot    board.Shot
		problem string
		view    board.View
		want    string
	}{
		"plain": {
			board.Shot{Page: page},
			"",
			board.View{},
			`1 overtaken; 3 wait for 1; 1 with a bad key, or without a majority
hand-offs  0 seen, 0.0 a minute; claim to claim: median 1.2s, longest 1m30s
claims     0, 0.0 a minute, and about 7 fences, in all namespaces
workers    2 of 3 answered: 0 held, 4 lost (+1), 0 refused (+0), 0 held off (+0); ` +
				`hand-off: median 1.3ms, 99 % within 40ms

RESOURCE  HOLDER  TOKEN  LEFT  HELD FOR  WAITING  CHANGES  LAST TURN
b         host    8      -     -         3        0        -          overtaken
a?[31m?b  -       7      29s   1h7m      0        0        -
c         -       -      -     -         0        0        -          bad key
… there are more: raise --limit`,
		},
		"few rows": {board.Shot{Page: page}, "", board.View{Rows: 1, Order: "name"}, "… and 2 others"},
		"a problem": {
			board.Shot{Page: page, Problem: errors.New("x"), Since: at},
			"Redis is down",
			board.View{},
			"No answer since 02:14:05Z: Redis is down What follows was seen at 02:14:05Z.\n\nleases ",
		},
		"a problem at once": {
			board.Shot{Problem: errors.New("x"), Since: at},
			"Redis is down",
			board.View{},
			"No answer since 02:14:05Z: Redis is down\n",
		},
		"colours": {board.Shot{Page: page}, "", board.View{Colour: true}, "\x1b[31m1 overtaken\x1b[0m"},
		"the first": {
			board.Shot{Page: &board.Page{At: at, Since: at, Totals: board.Totals{Fences: 3}}},
			"",
			board.View{},
			"hand-offs  are seen from the second look on\nclaims     are counted from the second look on; about 3 fences",
		},
		"nobody": {
			board.Shot{Page: &board.Page{Namespace: "billing"}},
			"",
			board.View{},
			"nobody holds a lease in the namespace billing",
		},
		"not told": {board.Shot{Page: &board.Page{}}, "", board.View{}, "workers    not asked (--workers)"},
		"silent": {
			board.Shot{Page: &board.Page{Workers: &board.Workers{Asked: 2}}}, "", board.View{}, "workers    none of 2 answered",
		},
	} {
		if got := strings.Join(board.Lines(tt.shot, tt.problem, tt.view), "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got\n%s\nwant in it\n%s", name, got, tt.want)
		}
	}
}
