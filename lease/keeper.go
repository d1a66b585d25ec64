package lease

import (
	"container/heap"
	"sync"
	"time"
)

// keeper renews the leases of one manager and ends them in time. However many there are, it has one
// timer, and at most maxSenders goroutines while renewals are under way (over a cluster, for each of its nodes):
// those due together travel together.
type keeper struct {
	backend backend
	clock   clock

	mu      sync.Mutex
	leases  wakeHeap
	timer   timer
	armed   time.Time // when the timer fires; zero where it is not set
	pending []*Lease  // to be renewed, each marked as renewing
	senders int
}

const (
	// maxSenders bounds the pipelines under way: one that hangs must not hold up all others.
	maxSenders = 4
	// maxBatch bounds one pipeline, so that its answers come while they are of use.
	maxBatch = 256
	// slack lets leases that are due within it be renewed together.
	slack = time.Millisecond
)

func newKeeper(b backend, c clock) *keeper { return &keeper{backend: b, clock: c} }

// set has a lease woken at a moment. Called with the lease's mu held.
func (k *keeper) set(l *Lease, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.wakeAt = at
	if l.heapIndex < 0 {
		heap.Push(&k.leases, l)
	} else {
		heap.Fix(&k.leases, l.heapIndex)
	}
	k.arm()
}

// drop forgets a lease. The timer stays as it is: one look in vain costs less than setting it for every
// lease. Called with the lease's mu held.
func (k *keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.heapIndex >= 0 {
		heap.Remove(&k.leases, l.heapIndex)
	}
}

// arm sets the timer to the first lease. A timer that fires early costs nothing but a look, so it
// is not moved back. Called with mu held.
func (k *keeper) arm() {
	if len(k.leases) == 0 {
		return
	}
	first := k.leases[0].wakeAt
	if !k.armed.IsZero() && !first.Before(k.armed) {
		return
	}
	k.armed = first
	in := max(0, first.Sub(k.clock.monotonic()))
	if k.timer == nil {
		k.timer = k.clock.afterFunc(in, k.tick)
	} else {
		k.timer.Reset(in)
	}
}

// tick is called by the timer.
func (k *keeper) tick() {
	var renew []*Lease
	for _, l := range k.due() {
		if l.woken() {
			renew = append(renew, l)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending = append(k.pending, renew...)
	// Not fewer for those at work already: they may hang.
	for batches := (len(k.pending) + maxBatch - 1) / maxBatch; batches > 0 && k.senders < maxSenders; batches-- {
		k.senders++
		go k.send()
	}
}

// due takes the leases to be woken now off the heap.
func (k *keeper) due() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = time.Time{}
	var due []*Lease
	for now := k.clock.monotonic().Add(slack); len(k.leases) > 0 && !k.leases[0].wakeAt.After(now); {
		l, _ := heap.Pop(&k.leases).(*Lease)
		due = append(due, l)
	}
	k.arm()
	return due
}

// send renews what is pending, batch by batch, and ends when nothing is.
func (k *keeper) send() {
	for {
		k.mu.Lock()
		batch := k.pending[:min(len(k.pending), maxBatch)]
		k.pending = k.pending[len(batch):]
		if len(batch) == 0 {
			k.senders--
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		groups := k.backend.groups(batch)
		for _, group := range groups[1:] {
			go k.renew(group)
		}
		k.renew(groups[0])
	}
}

// renew sends a batch and hands each lease its answer.
func (k *keeper) renew(leases []*Lease) {
	start := k.clock.now()
	batch := make([]renewal, 0, len(leases))
	for _, l := range leases {
		ttl := l.currentTTL()
		if over := l.Err(); over != nil { // while it waited to be sent
			_ = l.renewed(start, ttl, "", over)
			continue
		}
		batch = append(batch, renewal{lease: l, ttl: ttl})
	}
	if len(batch) > 0 {
		k.backend.renewAll(batch)
	}
	for _, b := range batch {
		if err := b.lease.renewed(start, b.ttl, b.answer, b.err); err != nil && b.lease.Err() == nil {
			b.lease.m.opts.Logger.Warn("lease not renewed, trying again", "resource", b.lease.resource, "error", err)
		}
	}
}

// wakeHeap orders leases by when they are to be woken; see container/heap.
type wakeHeap []*Lease

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }
func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push adds an element for container/heap.
func (h *wakeHeap) Push(x any) {
	l, _ := x.(*Lease)
	l.heapIndex = len(*h)
	*h = append(*h, l)
}

// Pop takes the last element off for container/heap.
func (h *wakeHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.heapIndex = -1
	return l
}
