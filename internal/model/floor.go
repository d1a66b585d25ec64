package model

// mustCreate reports whether a claim has to create the fence, under the rules of the floor. Without collections that is
// one step with the rest of the claim.
func (s *search) mustCreate(at state) bool { return at.fenceToken == 0 && s.bounds.Collections > 0 }

// look finds no fence. A naive claim has read the floor by then, and takes what it has read for true later on.
func (s *search) look(at state, w int) {
	if s.bounds.Collections == 0 || at.fenceToken > 0 && !s.rules.OldFloor {
		return
	}
	after := at
	me := &after.workers[w]
	me.phase = looked
	if s.rules.OldFloor {
		me.fence = at.floor
		s.to(after, stepOf("worker %d reads the floor: %d", w, int(at.floor)))
		return
	}
	s.to(after, stepOf("worker %d finds no fence", w))
}

// lockBucket locks the bucket in share mode, and compares with its floor.
func (s *search) lockBucket(at state, w int) {
	floor := at.floor
	switch {
	case s.rules.OldFloor:
		floor = at.workers[w].fence
		if at.fenceToken > 0 {
			at.workers[w].phase, at.workers[w].fence = granted, 0
			s.to(at, stepOf("worker %d finds a fence", w))
			return
		}
	case at.collector.open && !s.rules.NoBucket:
		return // waits
	}
	after := at
	me := &after.workers[w]
	if me.token <= floor {
		me.phase, me.fence = refused, floor
		s.result.Floors++
		s.to(after, stepOf("worker %d may not claim token %d: the floor is at %d", w, int(me.token), int(floor)))
		return
	}
	me.phase, me.fence = creating, 0
	s.to(after, stepOf("worker %d is above the floor of %d", w, int(floor)))
}

// create inserts the fence, and commits at once or with a guarded write. It waits for another's open insert, and if the
// fence is there, claims again.
func (s *search) create(at state, w int) {
	if _, exclusive := at.locked(w); exclusive {
		return
	}
	after := at
	me := &after.workers[w]
	if at.fenceToken > 0 {
		me.phase = granted
		s.to(after, stepOf("worker %d finds that another has created the fence", w))
		return
	}
	me.phase, me.created = folded, true
	s.to(after, stepOf("worker %d creates the fence with token %d, and goes on", w, int(me.token)))
	step := stepOf("worker %d creates the fence with token %d, and commits", w, int(me.token))
	me.phase = claimed
	s.claimCommits(at, &after, w, step)
	s.to(after, step)
}

// collect adds what a collection can do next. It waits for nobody.
func (s *search) collect(at state) {
	after := at
	switch {
	case at.collector.open:
		s.collectFence(at)
		after.collector = collector{}
		if at.floor < maxToken-1 {
			after.floor++
			s.to(after, stepOf("another fence is collected, and the floor is %d", int(after.floor)))
			after.floor--
		}
		s.to(after, stepOf("the collection finds nothing"))
	case int(at.collected) < s.bounds.Collections && (s.rules.NoBucket || !at.bucketShared()):
		after.collected++
		after.collector.open = true
		if s.rules.OldFold {
			after.collector.folded = at.fenceToken
		}
		s.to(after, stepOf("a collection begins"))
	}
}

// collectFence deletes the fence, if no open transaction has it locked, and commits.
func (s *search) collectFence(at state) {
	shared, exclusive := at.locked(-1)
	if at.fenceToken == 0 || exclusive || shared && !s.rules.CollectBarges {
		return
	}
	after := at
	folded := at.fenceToken
	if s.rules.OldFold {
		folded = at.collector.folded
	}
	if !s.rules.NoFold {
		after.floor = max(at.floor, folded)
	}
	after.fenceToken, after.fenceNonce, after.collector = 0, 0, collector{}
	s.result.Collections++
	s.to(after, stepOf("the fence at %d is collected, and the floor is %d", int(at.fenceToken), int(after.floor)))
}
