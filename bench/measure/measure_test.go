package measure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

func TestSpreadOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		numbers []float64
		want    measure.Spread
	}{
		{"one", []float64{7}, measure.Spread{Low: 7, Median: 7, High: 7}},
		{"two", []float64{3, 1}, measure.Spread{Low: 1.5, Median: 2, High: 2.5}},
		{"odd", []float64{5, 1, 4, 2, 3}, measure.Spread{Low: 2, Median: 3, High: 4}},
		{"even", []float64{40, 10, 30, 20}, measure.Spread{Low: 17.5, Median: 25, High: 32.5}},
		{"an outlier moves nothing", []float64{1, 1, 1, 1, 1e9}, measure.Spread{Low: 1, Median: 1, High: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tt.numbers)
			if got := measure.SpreadOf(tt.numbers); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if !slices.Equal(tt.numbers, before) {
				t.Errorf("the caller's numbers were moved: %v", tt.numbers)
			}
		})
	}
}

func seriesOf(rates ...float64) measure.Series {
	var s measure.Series
	for _, rate := range rates {
		s.Samples = append(s.Samples, measure.Sample{Rate: rate, Allocs: rate / 10, Bytes: rate * 10})
	}
	return s
}

// TestRatioIsTakenWithinRounds: on a machine that drifts, the ratio of medians would say 1.
func TestRatioIsTakenWithinRounds(t *testing.T) {
	t.Parallel()
	baseline, candidate := seriesOf(100, 10, 50), seriesOf(50, 20, 100)
	if got := candidate.Ratio(baseline).Median; got != 2 {
		t.Errorf("got a ratio of %v, want 2", got)
	}
	if got := baseline.Ratio(baseline); got != (measure.Spread{Low: 1, Median: 1, High: 1}) {
		t.Errorf("the baseline against itself is %+v, want 1", got)
	}
}

func TestMediansOfASeries(t *testing.T) {
	t.Parallel()
	s := seriesOf(30, 10, 20)
	if got := [3]float64{s.Rate().Median, s.Allocs().Median, s.Bytes().Median}; got != [3]float64{20, 2, 200} {
		t.Errorf("got %v, want 20, 2 and 200", got)
	}
}

// log is the order in which candidates were called.
type log struct {
	mu    sync.Mutex
	calls []string
}

func (l *log) candidate(name string) measure.Candidate {
	return measure.Candidate{Name: name, Worker: func(int) func(context.Context) error {
		return func(context.Context) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, name)
			return nil
		}
	}}
}

// once is a plan in which each worker makes one call per slice and hardly more, because the time is up at once.
func once(rounds, workers int) measure.Plan {
	return measure.Plan{Rounds: rounds, Workers: workers, Slice: -time.Hour, WarmUp: -time.Hour}
}

// TestCandidatesAlternate: each candidate warms up and then has its slice in each round, and over the
// rounds each comes first, last and in between equally often.
func TestCandidatesAlternate(t *testing.T) {
	t.Parallel()
	var l log
	result, err := measure.Compare(t.Context(), once(6, 1),
		measure.Comparison{Candidates: []measure.Candidate{l.candidate("a"), l.candidate("b"), l.candidate("c")}})
	if err != nil {
		t.Fatal(err)
	}
	turns := strings.Join(slices.Compact(l.calls), "")
	const warmUp, rounds = "abc", "abccba" + "bcaacb" + "cabbac"
	if turns != string(slices.Compact([]byte(warmUp+rounds))) {
		t.Errorf("the turns were %s, want %s and then %s (repeats as one)", turns, warmUp, rounds)
	}
	for _, s := range result.Series {
		if len(s.Samples) != 6 {
			t.Errorf("%s has %d samples, want 6: the warm-up does not count", s.Name, len(s.Samples))
		}
	}
}

// TestWorkersCallAtTheSameTime: a call that waits for its fellows comes back only if they are there.
func TestWorkersCallAtTheSameTime(t *testing.T) {
	t.Parallel()
	const workers = 8
	var mu sync.Mutex
	seen, all := map[int]bool{}, make(chan struct{})
	_, err := measure.Compare(t.Context(), once(1, workers), measure.Comparison{Candidates: []measure.Candidate{{
		Worker: func(worker int) func(context.Context) error {
			return func(context.Context) error {
				mu.Lock()
				if seen[worker] = true; len(seen) == workers {
					select {
					case <-all:
					default:
						close(all)
					}
				}
				mu.Unlock()
				select {
				case <-all:
					return nil
				case <-time.After(10 * time.Second):
					return errors.New("the others did not come")
				}
			}
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFailedCallEndsTheComparison(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var l log
	_, err := measure.Compare(t.Context(), once(1000, 4), measure.Comparison{Candidates: []measure.Candidate{
		l.candidate("good"),
		{Name: "bad", Worker: func(worker int) func(context.Context) error {
			return func(context.Context) error {
				if worker == 3 {
					return broken
				}
				return nil
			}
		}},
	}})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("got error %v, want %v of the candidate bad", err, broken)
	}
}

func TestContextReachesTheCalls(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := measure.Compare(ctx, once(1, 1), measure.Comparison{Candidates: []measure.Candidate{
		{Worker: func(int) func(context.Context) error { return context.Context.Err }},
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}

// TestRateAndAllocations does not run in parallel, because the allocations of other tests would be counted too.
func TestRateAndAllocations(t *testing.T) {
	const perCall, size = 40, 512
	pause := 2 * time.Millisecond
	result, err := measure.Compare(t.Context(), measure.Plan{Rounds: 3, Workers: 2, Slice: 60 * time.Millisecond},
		measure.Comparison{Candidates: []measure.Candidate{{Worker: func(int) func(context.Context) error {
			kept := make([][]byte, perCall)
			return func(context.Context) error {
				for i := range kept {
					kept[i] = make([]byte, size)
				}
				<-time.After(pause)
				return nil
			}
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	s := result.Series[0]
	most := 2 / pause.Seconds() // two workers; a busy machine makes it less
	if rate := s.Rate().Median; rate <= 0 || rate > most {
		t.Errorf("got %v calls/s, want above 0 and at most %v", rate, most)
	}
	if allocs := s.Allocs().Median; allocs < perCall || allocs > 1.5*perCall {
		t.Errorf("got %v allocations per call, want %d and few more", allocs, perCall)
	}
	if bytes := s.Bytes().Median; bytes < perCall*size || bytes > 1.5*perCall*size {
		t.Errorf("got %v bytes per call, want %d and few more", bytes, perCall*size)
	}
}

func TestEachCandidateIsFirstAndLastEquallyOften(t *testing.T) {
	t.Parallel()
	const n = 3
	first, last := map[int]int{}, map[int]int{}
	for round := range 2 * n {
		var order []int
		for turn := range n {
			order = append(order, measure.InTurn(round, turn, n))
		}
		first[order[0]]++
		last[order[n-1]]++
		if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("round %d has turns %v", round, order)
		}
	}
	for i := range n {
		if first[i] != 2 || last[i] != 2 {
			t.Errorf("candidate %d is first %d times and last %d times, want 2 and 2", i, first[i], last[i])
		}
	}
}

// A call that does a thousand things counts a thousand times, and a candidate may have its own number of workers.
func TestACandidateMayCountMoreAndWorkMore(t *testing.T) {
	t.Parallel()
	var asked []int
	candidate := func(name string, workers, each int) measure.Candidate {
		return measure.Candidate{
			Name: name, Workers: workers, Each: each,
			Worker: func(worker int) func(context.Context) error {
				asked = append(asked, worker)
				return func(ctx context.Context) error { <-ctx.Done(); return nil }
			},
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result, err := measure.Compare(ctx, measure.Plan{Rounds: 1, Workers: 1}, measure.Comparison{
		Unit: "thing", Candidates: []measure.Candidate{candidate("one", 0, 0), candidate("many", 3, 1_000_000)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 0, 1, 2}; !slices.Equal(asked, want) {
		t.Errorf("workers %v were asked for their call, want %v", asked, want)
	}
	if ratio := result.Series[1].Ratio(result.Series[0]).Median; result.Unit != "thing" || ratio < 1000 {
		t.Errorf("got a ratio of %v in %ss, want far above 1000", ratio, result.Unit)
	}
}
