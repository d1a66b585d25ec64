package model

// redis adds what can happen to the nodes by themselves.
func (s *search) redis(at state) {
	for n := range at.nodes {
		other := 1 - n
		if at.masters == 1<<n { // the other follows, and has the same after a while
			after := at
			after.nodes[other] = at.nodes[n]
			s.to(after, stepOf("node %d catches up", other))
		}
	}
	if int(at.faults) >= s.bounds.Faults {
		return
	}
	at.faults++
	for n := range at.nodes {
		s.promotions(at, n)
		s.losses(at, n)
	}
	if s.rules.ForgetFences && at.fenceToken > 0 {
		after := at
		after.fenceToken, after.fenceNonce = 0, 0
		s.to(after, stepOf("the fence is deleted"))
	}
}

func (s *search) promotions(at state, n int) {
	other := 1 - n
	if at.masters&(1<<n) == 0 {
		after := at
		after.masters |= 1 << n
		s.to(after, stepOf("node %d is promoted, and node %d goes on", n, other))
	}
	if at.masters == 3 {
		after := at
		after.masters = 1 << other
		after.nodes[n] = at.nodes[other]
		s.to(after, stepOf("node %d follows node %d", n, other))
	}
}

func (s *search) losses(at state, n int) {
	if at.nodes[n].counter > 0 {
		after := at
		after.nodes[n].counter = 0
		s.to(after, stepOf("node %d loses the counter", n))
	}
	if at.nodes[n].lease != 0 {
		after := at
		after.nodes[n].lease = 0
		s.to(after, stepOf("node %d loses the lease", n))
	}
	if at.nodes[n].lease == 0 && at.masters&(1<<n) != 0 && at.nodes[n].counter < maxToken {
		after := at
		after.nodes[n] = redisNode{counter: at.nodes[n].counter + 1, lease: stranger}
		s.to(after, stepOf("node %d grants the lease to a client that has gone away", n))
	}
}

// eachMaster calls fn for each node that takes writes.
func (at *state) eachMaster(fn func(n int)) {
	for n := range at.nodes {
		if at.masters&(1<<n) != 0 {
			fn(n)
		}
	}
}

// acquire asks a node for the lease. If the reply is lost, the worker asks again under the same nonce, which is no step
// of the model: the node says the same again. Or it goes away.
func (s *search) acquire(at state, w int) {
	if at.workers[w].nonces == maxNonces {
		return
	}
	at.eachMaster(func(n int) {
		if at.nodes[n].lease != 0 || at.nodes[n].counter == maxToken {
			return
		}
		after := at
		me := &after.workers[w]
		me.nonces++
		after.nodes[n].counter++
		after.nodes[n].lease = after.nonce(w)
		me.phase, me.token, me.seen, me.fence = granted, after.nodes[n].counter, 0, 0
		if s.rules.NoClaim {
			me.phase = claimed
		}
		s.to(after, stepOf("worker %d gets token %d from node %d", w, int(me.token), n))
		me.phase = finished
		s.to(after, stepOf("worker %d gets token %d from node %d, and goes away", w, int(me.token), n))
	})
}

// reissue makes a node's counter follow the fence, if the lease there is still the worker's.
func (s *search) reissue(at state, w int) {
	after := at
	after.workers[w].phase = finished
	s.to(after, stepOf("worker %d gives up", w))
	if s.rules.NoReissue {
		return
	}
	at.eachMaster(func(n int) {
		if at.nodes[n].lease != at.nonce(w) || at.workers[w].fence >= maxToken {
			return
		}
		after := at
		me := &after.workers[w]
		me.token = me.fence + 1
		me.phase, me.fence = granted, 0
		after.nodes[n].counter = me.token
		s.result.Reissues++
		s.to(after, stepOf("worker %d gets token %d from node %d in exchange", w, int(me.token), n))
	})
}

// release removes the lease wherever the worker reaches it, or nowhere.
func (s *search) release(at state, w int) {
	at.workers[w].fence, at.workers[w].seen, at.workers[w].token = 0, 0, 0
	next := at
	next.workers[w].phase = idle
	if next.workers[w].nonces == maxNonces {
		next.workers[w].phase = gone
	}
	s.to(next, stepOf("worker %d does not release", w))
	at.eachMaster(func(n int) {
		if at.nodes[n].lease == at.nonce(w) {
			after := next
			after.nodes[n].lease = 0
			s.to(after, stepOf("worker %d releases on node %d", w, n))
		}
	})
}
