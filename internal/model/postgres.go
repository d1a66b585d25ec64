package model

// work adds what a worker can do next.
func (s *search) work(at state, w int) {
	switch at.workers[w].phase {
	case idle:
		s.acquire(at, w)
	case granted:
		if s.rules.ReadFirst {
			s.read(at, w)
		}
		s.look(at, w)
		s.claim(at, w)
		s.claimAndBegin(at, w)
	case looked:
		s.lockBucket(at, w)
	case creating:
		s.create(at, w)
	case refused:
		s.reissue(at, w)
	case claimed:
		s.read(at, w)
		s.begin(at, w)
		s.leave(at, w)
	case writing, folded:
		s.read(at, w)
		s.commit(at, w)
		s.rollBack(at, w)
	case finished:
		s.release(at, w)
	case gone:
	}
}

// mayClaim reports whether a claim can go ahead now, and whether the fence lets it.
func (s *search) mayClaim(at state, w int) (now, allowed bool) {
	shared, exclusive := at.locked(w)
	me := at.workers[w]
	same := at.fenceToken == me.token && at.fenceNonce == at.nonce(w)
	allowed = at.fenceToken < me.token || same || s.rules.ClaimAgain && at.fenceToken == me.token
	return !exclusive && (!shared || s.rules.ClaimBarges), allowed
}

// claim raises the fence in a transaction of its own. If the reply is lost, the worker claims again, which changes
// nothing.
func (s *search) claim(at state, w int) {
	now, allowed := s.mayClaim(at, w)
	if !now || s.mustCreate(at) {
		return // look says what happens then
	}
	after := at
	me := &after.workers[w]
	if !allowed {
		me.phase, me.fence = refused, at.fenceToken
		s.to(after, stepOf("worker %d may not claim token %d: the fence is at %d", w, int(me.token), int(at.fenceToken)))
		return
	}
	step := stepOf("worker %d claims token %d", w, int(me.token))
	me.phase = claimed
	s.claimCommits(at, &after, w, step)
	s.to(after, step)
}

// claimCommits raises the fence, and looks at all claims before.
func (s *search) claimCommits(at state, after *state, w int, step step) {
	tok, own := after.workers[w].token, after.nonce(w)
	s.result.Claims++
	if again := at.lastToken == tok && at.lastNonce == own; !again && tok <= at.lastToken {
		s.broken(Unique, step)
	}
	after.fenceToken, after.fenceNonce = tok, own
	after.workers[w].created = false
	after.lastToken, after.lastNonce = tok, own
}

// claimAndBegin begins a transaction that claims and writes. The fence is locked until it ends, and has its old token
// for everybody else.
func (s *search) claimAndBegin(at state, w int) {
	now, allowed := s.mayClaim(at, w)
	if !now || !allowed || s.mustCreate(at) {
		return // claim and look say what happens then
	}
	after := at
	after.workers[w].phase = folded
	s.to(after, stepOf("worker %d begins, and claims token %d", w, int(at.workers[w].token)))
}

// begin begins a guarded transaction. It waits for a claim under way.
func (s *search) begin(at state, w int) {
	if _, exclusive := at.locked(w); exclusive && !s.rules.NoGuard {
		return
	}
	me := at.workers[w]
	after := at
	after.workers[w].phase = writing
	unguarded := s.rules.NoGuard || s.rules.NoClaim
	if !unguarded && (at.fenceToken != me.token || at.fenceNonce != at.nonce(w)) {
		after.workers[w].phase = finished
		s.to(after, stepOf("worker %d is refused as stale", w))
		return
	}
	s.to(after, stepOf("worker %d begins under token %d", w, int(me.token)))
}

// read reads the row. Only the first read counts: what is read later is newer.
func (s *search) read(at state, w int) {
	if at.workers[w].seen > 0 {
		return
	}
	after := at
	after.workers[w].seen = at.version
	s.to(after, stepOf("worker %d reads version %d", w, int(at.version)))
}

// commit writes the row and commits, with the claim in a folded transaction.
func (s *search) commit(at state, w int) {
	me := at.workers[w]
	if at.rowToken > me.token && !s.rules.NoCompare {
		return // no row matches; rollBack says what happens then
	}
	step := stepOf("worker %d writes under token %d, and commits", w, int(me.token))
	after := at
	if me.phase == folded {
		s.claimCommits(at, &after, w, step)
	}
	s.result.Writes++
	if me.token < after.lastToken && !s.rules.NoClaim {
		s.broken(Fenced, step)
	}
	if me.seen > 0 && me.seen != at.version {
		s.broken(NoLost, step)
	}
	if me.token < at.rowToken {
		s.broken(RowFalls, step)
	}
	after.version, after.rowToken = at.version+1, me.token
	after.workers[w].phase, after.workers[w].seen = claimed, 0
	if after.version < maxVersion {
		s.to(after, step)
	}
	after.workers[w].phase = finished
	s.to(after, step)
}

// maxVersion bounds how often the row is written.
const maxVersion = 5

// rollBack ends a transaction without a trace. A folded one may run again, under the same token.
func (s *search) rollBack(at state, w int) {
	after := at
	me := &after.workers[w]
	me.seen = 0
	switch me.phase {
	case folded:
		me.phase, me.created = granted, false
	default:
		me.phase = claimed
	}
	s.to(after, stepOf("worker %d rolls back", w))
}

// leave ends the work of a claimed worker.
func (s *search) leave(at state, w int) {
	after := at
	after.workers[w].phase = finished
	s.to(after, stepOf("worker %d has finished", w))
}
