package model

// live reports whether the next worker can claim once faults have ended: one node takes writes, the leases have run
// out, and open transactions have ended. It asks that node, claims, and if it is refused exchanges its token once.
func (s *search) live(at state) bool {
	if s.rules.NoClaim {
		return true
	}
	live := true
	highest := at.fenceToken
	if highest == 0 {
		highest = at.floor
	}
	at.eachMaster(func(n int) {
		counter := at.nodes[n].counter
		for tries := 2; ; tries-- {
			tok := counter + 1
			switch {
			case tok > highest:
				return
			case tries == 1 || s.rules.NoReissue:
				live = false
				return
			}
			counter = highest
		}
	})
	return live
}
