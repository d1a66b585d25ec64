package board

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Page is what one look found. It is never changed once it has been returned.
type Page struct {
	At        time.Time `json:"at"`    // by this host's clock
	Since     time.Time `json:"since"` // the first look: what was seen happening is counted from then
	Namespace string    `json:"namespace"`
	TookMS    int64     `json:"took_ms"`
	Totals    Totals    `json:"totals"`
	Workers   *Workers  `json:"workers"` // nil if nobody said where they are
	Leases    []Row     `json:"leases"`
	More      bool      `json:"more"` // there are others, which the totals do not count
}

// First reports whether the page is the board's first one: nothing has been seen happening yet.
func (p *Page) First() bool { return p.At.Equal(p.Since) }

// Totals are sums over the leases of the page, and over all fences.
type Totals struct {
	Held      int `json:"held"`
	Reserved  int `json:"reserved"`
	Other     int `json:"other"`      // bad keys, and minorities of a quorum
	Overtaken int `json:"overtaken"`  // of those held: the holder's writes are refused
	Waiting   int `json:"waiting"`    // workers
	WaitedFor int `json:"waited_for"` // leases

	HandOffs          int     `json:"hand_offs"` // seen since the first look; there may have been more between two looks
	HandOffsPerMinute float64 `json:"hand_offs_per_minute"`
	TurnMS            int64   `json:"turn_ms"` // the median time from a claim to the next; 0: none was seen
	LongestTurnMS     int64   `json:"longest_turn_ms"`

	Claims          int64   `json:"claims"` // since the first look, of all namespaces of the database
	ClaimsPerMinute float64 `json:"claims_per_minute"`
	Fences          int64   `json:"fences"` // about, of all namespaces
}

// Row is one lease.
type Row struct {
	Resource  string         `json:"resource"`
	Standing  lease.Standing `json:"standing"`
	Holder    string         `json:"holder,omitempty"`
	Token     token.Token    `json:"token,omitempty"`
	LeftMS    int64          `json:"left_ms,omitempty"`
	HeldMS    int64          `json:"held_ms,omitempty"` // since the claim, by PostgreSQL's clock; 0: not claimed yet
	Waiting   int            `json:"waiting"`
	Fence     token.Token    `json:"fence,omitempty"`
	Overtaken bool           `json:"overtaken,omitempty"`
	HandOffs  int            `json:"hand_offs"`         // seen since the first look
	TurnMS    int64          `json:"turn_ms,omitempty"` // the last one that was seen
}

// Says is what is unusual about the lease, in a word or two.
func (r Row) Says() string {
	switch {
	case r.Overtaken:
		return "overtaken"
	case r.Standing != lease.Held:
		return string(r.Standing)
	}
	return ""
}

// Orders are the orders of the rows. What the first letter of each is, its key in the terminal, is different.
func Orders() []string { return []string{"waiting", "held", "changes", "name"} }

// Sorted returns the rows in an order, and by name where that does not decide. An order that is not one of Orders is
// the first of them.
func (p *Page) Sorted(order string) []Row {
	by := func(a, b Row) int { return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.HeldMS, a.HeldMS)) }
	switch order {
	case "held":
		by = func(a, b Row) int { return cmp.Compare(b.HeldMS, a.HeldMS) }
	case "changes":
		by = func(a, b Row) int { return cmp.Compare(b.HandOffs, a.HandOffs) }
	case "name":
		by = func(Row, Row) int { return 0 }
	}
	rows := slices.Clone(p.Leases)
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(by(a, b), strings.Compare(a.Resource, b.Resource)) })
	return rows
}

// add counts a row.
func (t *Totals) add(r Row) {
	switch r.Standing {
	case lease.Held:
		t.Held++
	case lease.Reserved:
		t.Reserved++
	case lease.Free:
	default:
		t.Other++
	}
	if r.Overtaken {
		t.Overtaken++
	}
	if t.Waiting += r.Waiting; r.Waiting > 0 {
		t.WaitedFor++
	}
}
