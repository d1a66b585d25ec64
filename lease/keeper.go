package lease

import (
	"container/heap"
	"sync"
	"time"
)

// keeper renews the leases of one manager and ends them in time. It has one timer, however many leases there are, and
// at most maxSenders goroutines while renewals are in flight (on a cluster, for each node). Renewals that are due
// together travel together.
type keeper struct {
	backend backend
	clock   clocks

	mu      sync.Mutex
	leases  wakeHeap
	timer   timer
	armed   time.Time // when the timer fires; zero if it is not set
	pending []*Lease  // to be renewed, each marked as renewing
	senders int
}

const (
	// maxSenders bounds the pipelines in flight: one that hangs must not hold up all others.
	maxSenders = 4
	// maxBatch bounds one pipeline, so that its replies arrive in time.
	maxBatch = 256
	// slack is how close together leases may be due and still be renewed in one batch.
	slack = time.Millisecond
)

func newKeeper(b backend, c clocks) *keeper { return &keeper{backend: b, clock: c} }

// set schedules the next wake-up of a lease. Called with the lease's mu held.
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

// drop removes a lease. The timer stays as it is: one needless wake-up costs less than setting the timer for every
// lease. Called with the lease's mu held.
func (k *keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.heapIndex >= 0 {
		heap.Remove(&k.leases, l.heapIndex)
	}
}

// arm sets the timer for the first lease. A timer that fires early costs only a look, so it is never moved back. Called
// with mu held.
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

// tick runs when the timer fires.
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
	// Running senders do not reduce the number started: they may hang.
	for batches := (len(k.pending) + maxBatch - 1) / maxBatch; batches > 0 && k.senders < maxSenders; batches-- {
		k.senders++
		go k.send()
	}
}

// due removes the leases that are to be woken now from the heap.
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

// send renews the pending leases, batch by batch, and exits when none is left.
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

// renew sends a batch and passes each lease its reply.
func (k *keeper) renew(leases []*Lease) {
	start := k.clock.now()
	batch := make([]renewal, 0, len(leases))
	for _, l := range leases {
		ttl, confirms := l.nextTTL()
		if over := l.Err(); over != nil { // it ended while it waited to be sent
			_ = l.renewed(start, ttl, "", over)
			continue
		}
		batch = append(batch, renewal{lease: l, ttl: ttl, confirms: confirms})
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
