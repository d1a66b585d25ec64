package lease

import (
	"testing"
	"time"
)

// C57: the silence of a server bounds the calls on it, not their number.
func TestCase57_OnlyASilentServerTurnsCallsAway(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	now := time.Unix(1000, 0)
	b := breaker{patience: patience}
	enter := func(times int) (in int) {
		for range times {
			if _, ok := b.enter(now); ok {
				in++
			}
		}
		return in
	}
	leave := func(answered bool) { b.leave(now, passage{}, answered) }
	if in := enter(1000); in != 1000 {
		t.Errorf("%d of 1000 calls at once went", in)
	}
	now = now.Add(patience - 1)
	leave(true)
	now = now.Add(patience - 1)
	if in := enter(1000); in != 1000 {
		t.Errorf("%d of 1000 calls went to a server that has just answered", in)
	}
	now = now.Add(patience)
	leave(false) // a time limit is no answer
	probes := 0
	for range 10 * maxProbes { // all of which hang
		now = now.Add(patience)
		in := enter(1000)
		if probes += in; in > 1 {
			t.Errorf("%d calls went to a server that says nothing", in)
		}
	}
	if probes != maxProbes {
		t.Errorf("%d calls were to see whether the server answers again, want %d", probes, maxProbes)
	}
	b.leave(now, passage{probe: true}, false)
	if in := enter(1000); in != 1 {
		t.Errorf("%d calls after one of those has ended, want one more", in)
	}
	leave(true)
	if in := enter(1000); in != 1000 {
		t.Errorf("%d of 1000 calls went to a server that answers again", in)
	}
}

// A server that was not asked for a long time is not silent.
func TestAServerThatNobodyAskedIsNotSilent(t *testing.T) {
	t.Parallel()
	b := breaker{patience: time.Second}
	for day := range 3 {
		now := time.Unix(int64(day)*86400, 0)
		for range 2 * maxHanging {
			if _, ok := b.enter(now); !ok {
				t.Fatal("turned away")
			}
		}
		for range 2 * maxHanging {
			b.leave(now, passage{}, true)
		}
	}
}
