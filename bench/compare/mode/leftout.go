package mode

import "github.com/fencepost-pg/fencepost/bench/compare/work"

// LeftOut returns why a mode makes no sense for a workload, with or without an idempotency key: a clause for people. It
// returns "" if the mode makes sense.
func LeftOut(name string, w work.Workload, keyed bool) string {
	switch {
	case name == Unique && w != work.Invoice:
		return "a unique constraint guards work that inserts once"
	case name == Unique && !keyed:
		return "the number of an invoice is a key by nature"
	case name == ForUpdate && w == work.Invoice:
		return "there is no row to lock before it is inserted"
	case name == Optimistic && w == work.Invoice:
		return "there is no row with a version before it is inserted"
	}
	return ""
}
