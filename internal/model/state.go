package model

// Bounds of the search.
const (
	nodes = 2
	// maxWorkers is how many workers there may be.
	maxWorkers = 3
	// maxNonces is how many grants a worker may ask for, each under a nonce of its own.
	maxNonces = 2
	// maxToken bounds counters. Paths that would exceed it are cut off.
	maxToken = 6
)

// nonce tells grants apart. 0 is none.
type nonce uint8

// stranger is the nonce of grants that nobody knows of: made for a client that has gone away.
const stranger nonce = 255

// redisNode is one Redis server.
type redisNode struct {
	counter uint8 // 0: there is none
	lease   nonce
}

// phase is what a worker does next.
type phase uint8

const (
	idle     phase = iota // acquire
	granted               // claim
	looked                // lock the bucket: there was no fence, or (OldFloor) the floor has been read
	creating              // insert the fence and commit; the bucket is locked in share mode
	refused               // reissue: the fence was ahead
	claimed               // begin a guarded transaction
	writing               // commit it; the fence is locked in share mode
	folded                // commit it with its claim; the fence is locked exclusively
	finished              // release
	gone
)

type worker struct {
	phase  phase
	nonces uint8 // how many grants it has asked for
	token  uint8
	fence  uint8 // in refused: the fence's token, or the floor; in looked, under OldFloor: the floor that it has read
	// created: its open transaction has inserted the fence, and has the bucket locked until it ends.
	created bool
	seen    uint8 // the row's version that it has read under its claim, from 1; 0: none
}

// state is one state of everything. It is comparable, and small.
type state struct {
	nodes   [nodes]redisNode
	masters uint8 // a bit for each node that takes writes
	faults  uint8 // how many have happened

	fenceToken uint8 // 0: there is no fence
	fenceNonce nonce
	floor      uint8 // of the fence's bucket
	collector  collector
	collected  uint8 // how many collections have begun
	version    uint8 // of the row, from 1
	rowToken   uint8

	workers [maxWorkers]worker

	lastToken uint8 // of the latest committed claim, whatever the fence says
	lastNonce nonce
}

// collector is a collection under way.
type collector struct {
	open   bool  // it has locked the bucket
	folded uint8 // under OldFold: the token that it has read and will fold
}

// nonce is that of worker w's current grant.
func (s *state) nonce(w int) nonce { return nonce(w*maxNonces) + nonce(s.workers[w].nonces) }

// bucketShared reports whether a worker's open transaction has the bucket locked in share mode.
func (s *state) bucketShared() bool {
	for i := range s.workers {
		if s.workers[i].phase == creating || s.workers[i].phase == folded && s.workers[i].created {
			return true
		}
	}
	return false
}

// locked reports whether a transaction other than w's has the fence locked in share mode, and exclusive whether one has
// it locked exclusively.
func (s *state) locked(w int) (shared, exclusive bool) {
	for i := range s.workers {
		if i != w {
			shared = shared || s.workers[i].phase == writing
			exclusive = exclusive || s.workers[i].phase == folded
		}
	}
	return shared, exclusive
}
