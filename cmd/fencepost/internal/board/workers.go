package board

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Workers are sums over what workers export about themselves (otelfencepost). The counts begin with each worker's
// start; those ending in New begin with the first look.
type Workers struct {
	Asked    int `json:"asked"`
	Answered int `json:"answered"`

	Held       int64 `json:"held"`    // leases
	Lost       int64 `json:"lost"`    // leases that ended in another way than by their release
	Refused    int64 `json:"refused"` // writes that PostgreSQL refused as overtaken
	HeldOff    int64 `json:"held_off"`
	LostNew    int64 `json:"lost_new"`
	RefusedNew int64 `json:"refused_new"`
	HeldOffNew int64 `json:"held_off_new"` // acquires that ended because another had the lease

	HandOffs     int64   `json:"hand_offs"`       // that were timed: both sides in one process
	HandOffMS    float64 `json:"hand_off_ms"`     // the median, as exact as the buckets of the histogram; 0: none
	HandOffP99MS float64 `json:"hand_off_p99_ms"` // 99 of 100 are not longer
}

// counts are what one worker has counted.
type counts struct{ held, lost, refused, heldOff int64 }

// workers asks workers. A worker that does not answer keeps the counts of its last answer, so that sums do not fall.
type workers struct {
	addresses []string
	client    *http.Client
	last      []*answer
	new       counts // since the first look
}

// answer is what one worker said.
type answer struct {
	counts
	handOffs buckets
}

// buckets are the cumulative counts of a histogram, by upper bound in seconds.
type buckets map[float64]uint64

const (
	askWithin   = 3 * time.Second
	askAtOnce   = 8
	answerBytes = 8 << 20 // the longest answer that is read
)

func newWorkers(addresses []string) *workers {
	return &workers{
		addresses: addresses, last: make([]*answer, len(addresses)),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}},
	}
}

// ask asks all workers, and returns nil if there is nobody to ask.
func (w *workers) ask(ctx context.Context) *Workers {
	if len(w.addresses) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	now := make([]*answer, len(w.addresses))
	turn := make(chan struct{}, askAtOnce)
	var all sync.WaitGroup
	for i, address := range w.addresses {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			now[i], _ = w.askOne(ctx, address) // the number of those that answered is shown
		})
	}
	all.Wait()
	return w.sum(now)
}

// sum adds answers up. A count that fell began again, because its worker did.
func (w *workers) sum(now []*answer) *Workers {
	sum := &Workers{Asked: len(now)}
	rise := func(was, is int64) int64 {
		if is < was {
			return is
		}
		return is - was
	}
	hand := buckets{}
	for i, a := range now {
		was := w.last[i]
		switch {
		case a == nil && was == nil:
			continue
		case a == nil:
			a = &answer{counts: was.counts, handOffs: was.handOffs}
			a.held = 0 // who knows
		default:
			sum.Answered++
			if was != nil {
				w.new.lost += rise(was.lost, a.lost)
				w.new.refused += rise(was.refused, a.refused)
				w.new.heldOff += rise(was.heldOff, a.heldOff)
			}
			w.last[i] = a
		}
		sum.Held += a.held
		sum.Lost += a.lost
		sum.Refused += a.refused
		sum.HeldOff += a.heldOff
		for bound, n := range a.handOffs {
			hand[bound] += n
		}
	}
	sum.LostNew, sum.RefusedNew, sum.HeldOffNew = w.new.lost, w.new.refused, w.new.heldOff
	sum.HandOffs = int64(hand[math.Inf(1)]) //nolint:gosec // a count
	sum.HandOffMS, sum.HandOffP99MS = hand.quantile(0.5)*1000, hand.quantile(0.99)*1000
	return sum
}

// askOne reads the metrics of one worker.
func (w *workers) askOne(ctx context.Context, address string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, answerBytes))
	if err != nil {
		return nil, err
	}
	return read(families), nil
}

// read takes from metrics what is shown.
func read(families map[string]*dto.MetricFamily) *answer {
	a := &answer{handOffs: buckets{}}
	for name, to := range map[string]*int64{
		"fencepost_lease_held":              &a.held,
		"fencepost_lease_lost_total":        &a.lost,
		"fencepost_transaction_stale_total": &a.refused,
	} {
		for _, m := range families[name].GetMetric() {
			*to += int64(m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue())
		}
	}
	for _, m := range families["fencepost_lease_acquire_duration_seconds"].GetMetric() {
		if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == "error_type" && l.GetValue() == "held"
		}) {
			a.heldOff += int64(m.GetHistogram().GetSampleCount()) //nolint:gosec // a count
		}
	}
	for _, m := range families["fencepost_lease_handoff_duration_seconds"].GetMetric() {
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				a.handOffs[b.GetUpperBound()] += b.GetCumulativeCount()
			}
		}
		a.handOffs[math.Inf(1)] += h.GetSampleCount()
	}
	return a
}

// quantile estimates a quantile, in seconds, as Prometheus does: evenly spread within a bucket. What is beyond the last
// bound counts as that bound. It is 0 of nothing.
func (b buckets) quantile(q float64) float64 {
	total := float64(b[math.Inf(1)])
	if total == 0 {
		return 0
	}
	lower, below := 0.0, 0.0
	bounds := make([]float64, 0, len(b))
	for bound := range b {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	for _, bound := range bounds {
		count := float64(b[bound])
		if count >= q*total {
			if math.IsInf(bound, 1) || count == below {
				return lower
			}
			return lower + (bound-lower)*(q*total-below)/(count-below)
		}
		lower, below = bound, count
	}
	return lower
}
