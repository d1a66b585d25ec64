package fencepost_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A store over a quorum keeps its leases and their order while servers lose all their data, one after the other.
func TestInvariant4_AStoreOverAQuorum(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, testenv.RedisOn(t, testenv.OwnRedis(t).URL()))
	}
	b := setup(t, fencepost.Options{})
	s, err := fencepost.NewQuorum(b.pool, clients, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, s)
	var last fencepost.Token
	for range 2 {
		for _, rdb := range clients { // in the end all of them have forgotten
			l := acquire(t, s, "invoice-1", nil)
			if err := invoices.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}); err != nil {
				t.Fatal(err)
			}
			if l.Token() <= last || b.read(t, "1").LastFencingToken != l.Token() {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, rdb := range clients {
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if l := acquire(t, s, "invoice-1", nil); l.Token() <= last {
		t.Errorf("token %d after %d, with every server empty", l.Token(), last)
	}
	_, err = fencepost.NewQuorum(b.pool, clients[:2], nil)
	wantErr(t, err, fencepost.ErrInvalid)
}
