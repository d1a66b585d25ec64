package fencepost_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
)

// A lease without automatic renewal lasts for as long as its holder renews it.
func TestRenewKeepsALeaseOfAStore(t *testing.T) {
	t.Parallel()
	_, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(open[name], "")
			l := acquire(t, s, "r", &fencepost.AcquireOptions{TTL: 2 * time.Second, NoRenewal: true})
			if err := l.Renew(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if left := l.Remaining(); left < 30*time.Second {
				t.Errorf("%v left", left)
			}
			wantErr(t, l.Renew(t.Context(), time.Millisecond), fencepost.ErrInvalid)
			if err := l.Renew(t.Context(), 300*time.Millisecond); err != nil { // the control: the TTL asked for counts
				t.Fatal(err)
			}
			<-l.Done()
			wantErr(t, l.Renew(t.Context(), time.Minute), fencepost.ErrLost)
			if left := l.Remaining(); left != 0 {
				t.Errorf("%v left of a lease that is over", left)
			}
		})
	}
}

// reserved reports whether a release reserves the lease for a waiter whose process receives the message and never
// comes.
func reserved(t *testing.T, noQueue bool) bool {
	t.Helper()
	b := setup(t, fencepost.Options{NoQueue: noQueue})
	l := b.acquire(t, "r", nil)
	const process, waiter = "00000000000000000000000000000002", "00000000000000000000000000000001"
	subscription := b.rdb.Subscribe(t.Context(), b.prefix()+":wake:"+process)
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	place := redis.Z{Score: float64(time.Now().UnixMilli()) + 0.5, Member: waiter + process} // half of 16 s
	if err := b.rdb.ZAdd(t.Context(), b.prefix()+":{r}:queue", place).Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return !b.free(t, "r")
}

// With NoQueue a release reserves nothing for the first waiter. The control is a store with its queue.
func TestNoQueueOfAStoreReservesNothing(t *testing.T) {
	t.Parallel()
	if reserved(t, true) {
		t.Error("the lease was reserved")
	}
	if !reserved(t, false) {
		t.Error("the control: nothing was reserved")
	}
}
