package fencepost

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
)

// importBatch is one batch of an import, from its reading to the release of its leases.
type importBatch struct {
	first     int64 // the index of its first row in the source
	rows      []Change
	resources []string // of the rows, in their order
	names     []string // of the resources, sorted, each once
	of        []int    // for each row, the place of its resource in names
	batch     *pgbatch.Batch

	began  time.Time // when its leases were asked for
	leases []*Lease  // of names; nil until they are acquired

	held chan struct{} // closed once leases are all acquired

	writes   *aside
	err      error  // of the write, once it has ended
	releases *aside // ends after writes
}

// aside is work in another goroutine, whose end its caller waits for.
type aside struct {
	done     chan struct{} // closed once it has ended
	returned bool
	panicked any
}

func doAside(work func()) *aside {
	a := &aside{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		defer func() { a.panicked = recover() }()
		work()
		a.returned = true
	}()
	return a
}

// wait waits for the end of the work. If the work panicked, or ended its goroutine, wait does the same to the caller's.
func (a *aside) wait() {
	<-a.done
	if a.panicked != nil {
		panic(a.panicked)
	}
	if !a.returned {
		runtime.Goexit()
	}
}

// try asks for the leases of a batch while the one before is being written. It waits for no holder, and does not ask
// while the batch before may still wait for one.
func (im *importing[T]) try(ctx context.Context, b *importBatch) {
	select {
	case <-im.writing.held:
	case <-im.writing.writes.done:
	}
	if !meet(im.writing.names, b.names) {
		im.ahead, b.began = b, time.Now()
		b.leases = im.table.store.tryAll(ctx, b.names, im.acquire)
	}
}

// meet reports whether two sorted lists have a name in common.
func meet(a, b []string) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// sortNames sorts the names of the resources.
func (b *importBatch) sortNames() {
	order := make([]int, len(b.resources))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(b.resources[i], b.resources[j]) })
	b.names, b.of = make([]string, 0, len(order)), make([]int, len(order))
	for _, row := range order {
		if n := len(b.names); n == 0 || b.names[n-1] != b.resources[row] {
			b.names = append(b.names, b.resources[row])
		}
		b.of[row] = len(b.names) - 1
	}
}

// start writes a batch, and then releases its leases, in the background.
func (im *importing[T]) start(ctx context.Context, b *importBatch) {
	before := im.ended
	im.writing, im.ahead = b, nil
	b.held = make(chan struct{})
	b.writes = doAside(func() { b.err = im.write(ctx, b, before) })
	b.releases = doAside(func() {
		<-b.writes.done
		b.release(ctx, im.table.store)
	})
}

// outcome waits for the batch that is being written, and counts its rows.
func (im *importing[T]) outcome() error {
	b := im.writing
	if b == nil {
		return nil
	}
	b.writes.wait()
	im.released()
	im.writing, im.ended = nil, b
	if b.err != nil {
		return b.fromStart(b.err)
	}
	im.written += int64(len(b.rows))
	return nil
}

// released waits for the release of the leases of the batch before.
func (im *importing[T]) released() {
	if im.ended != nil {
		im.ended.releases.wait()
	}
}

// end waits for all that is under way, and gives back the leases of a batch that will not be written.
func (im *importing[T]) end(ctx context.Context) {
	for _, b := range []*importBatch{im.ended, im.writing} {
		if b != nil {
			<-b.releases.done
		}
	}
	if im.ahead != nil {
		_ = im.table.store.giveBack(ctx, im.ahead.leases, nil)
	}
}

func (b *importBatch) release(ctx context.Context, s *Store) {
	for i, released := range releaseEach(ctx, b.leases) {
		if released != nil && !errors.Is(b.err, released) {
			s.notReleased(b.leases[i], released)
		}
	}
}

// write writes a batch under leases of its own. before is the batch before it.
func (im *importing[T]) write(ctx context.Context, b, before *importBatch) (err error) {
	s, claimed := im.table.store, false
	if b.leases == nil {
		if before != nil {
			<-before.releases.done // while it waits for leases, it holds no others
		}
		b.began = time.Now()
		if b.leases, claimed, err = s.acquireSorted(ctx, b.names, im.acquire, true); err != nil {
			return err
		}
	}
	close(b.held)
	fn := func(ctx context.Context, tx pgx.Tx) error {
		tokens, err := b.tokens(tx)
		if err != nil {
			return err
		}
		return b.batch.UpsertEach(ctx, tx, tokens)
	}
	if claimed {
		return s.Tx(ctx, fn, b.leases...)
	}
	return im.claimAndWrite(ctx, fn, b)
}

// tokens returns the token of each row: that of its resource's claim, as the transaction has entered it. The claims are
// in the order of names.
func (b *importBatch) tokens(tx pgx.Tx) ([]Token, error) {
	handed, err := handedOut(tx)
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, len(b.of))
	for i, place := range b.of {
		tokens[i] = handed.claims[place].Token
	}
	return tokens, nil
}

// fromStart counts the rows of a batch's error from the start of the source.
func (b *importBatch) fromStart(err error) error {
	var report *BatchError
	if errors.As(err, &report) {
		for i := range report.Failures {
			report.Failures[i].Index += int(b.first)
		}
	}
	return err
}

// tryAll asks for the leases of resources, which are in the order of their names, once. If one of them is not granted,
// it gives all others back and returns nil.
func (s *Store) tryAll(ctx context.Context, names []string, opts *AcquireOptions) []*Lease {
	together, ok := s.locker.(togetherLocker)
	if !ok {
		return nil
	}
	ttl, o := s.leaseOptions(opts)
	short, cancel := context.WithTimeout(ctx, longestTogether)
	defer cancel()
	grants, errs := together.tryAcquireAll(short, names, ttl, o)
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		giveBackGrants(ctx, s, grants)
		return nil
	}
	return newGrantedLeases(s, names, grants)
}
