package held_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/held"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Each lease is renewed once in a third of its TTL, and afterwards none is held.
func TestLeasesAreWatched(t *testing.T) {
	client := testenv.Redis(t)
	const n = 200
	s, err := held.Measure(t.Context(), held.Plan{Client: client, Prefix: "watched", TTL: 6 * time.Second, Callers: 8}, n)
	if err != nil {
		t.Fatal(err)
	}
	if s.Renewals < 0.5 || s.Renewals > 2 || s.Bytes <= 0 || s.CPU < 0 {
		t.Errorf("got %+v, want about one renewal of each lease", s)
	}
	keys, err := client.Keys(t.Context(), "watched:*:lease").Result()
	if err != nil || len(keys) != 0 {
		t.Errorf("%d leases are still held (%v)", len(keys), err)
	}
}

// A measurement during which leases vanish is an error.
func TestALeaseThatIsLostIsAnError(t *testing.T) {
	client := testenv.RedisOn(t, testenv.OwnRedis(t).URL())
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for t.Context().Err() == nil {
			client.FlushDB(t.Context())
		}
	})
	t.Cleanup(flushing.Wait)
	_, err := held.Measure(t.Context(), held.Plan{Client: client, Prefix: "lost", TTL: 3 * time.Second, Callers: 1}, 3)
	if !errors.Is(err, held.ErrLost) {
		t.Errorf("got error %v, want %v", err, held.ErrLost)
	}
}
