package advisory

import (
	"errors"
	"fmt"
)

// capacityOf is how many entries of the server's lock table one session may fill: a quarter of them.
//
// All sessions share that table. While it is full, a statement that needs an entry fails with SQLSTATE 53200. The table
// has max_locks_per_transaction × (max_connections + max_prepared_transactions) entries, and a few more.
func capacityOf(table int64) int64 { return max(1, table/4) }

// errFull refuses a lock for which there is no entry. Acquire does not wait for one: its own caller may hold all of
// them.
var errFull = errors.New("no room in the server's lock table")

// refuse keeps a session from filling the lock table. A lock counts from the server's reply to the lock until its reply
// to the unlock. The session's goroutine sends one statement after the other, so nothing else is in flight here.
func (a *attempt) refuse(k *link) bool {
	a.refused = nil
	if k.table > 0 && k.locks >= a.session.locker.capacity(k.table) {
		a.refused = fmt.Errorf("%w: this session has %d locks, and a session may have a quarter of about %d "+
			"(max_locks_per_transaction × (max_connections + max_prepared_transactions)): "+
			"hold fewer leases, or raise a setting",
			errFull, k.locks, k.table)
	}
	return a.refused != nil
}
