package otelfencepost

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/lease"
)

// scope names the instrumentation.
const scope = "github.com/fencepost-pg/fencepost/otelfencepost"

// instruments are the metrics. Durations are in seconds.
type instruments struct {
	held metric.Int64UpDownCounter

	acquire, hold, handOff, renewalLag, claim, transaction, settle metric.Float64Histogram

	lost, reseeds, regressions, retries, stale, unknown metric.Int64Counter
}

// maker makes instruments, and keeps the errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func newInstruments(meter metric.Meter) (instruments, error) {
	m := &maker{meter: meter}
	held, err := meter.Int64UpDownCounter("fencepost.lease.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that this process holds"))
	i := instruments{
		held:    held,
		acquire: m.seconds("fencepost.lease.acquire.duration", "How long an acquire took, with the wait and the claim"),
		hold:    m.seconds("fencepost.lease.hold.duration", "How long a lease was held, until its release or its loss"),
		handOff: m.seconds("fencepost.lease.handoff.duration",
			"From a release to the grant of a waiter, both in this process"),
		renewalLag: m.seconds("fencepost.lease.renewal.lag",
			"Time since the last confirmed renewal, when half of the TTL had passed without one"),
		claim:       m.seconds("fencepost.claim.duration", "How long a claim took, with the wait for older transactions"),
		transaction: m.seconds("fencepost.transaction.duration", "How long a guarded transaction took, with all its runs"),
		settle: m.seconds("fencepost.commit.settle.duration",
			"How long it took to find out what became of a COMMIT whose reply was lost"),
		lost:        m.count("fencepost.lease.lost", "{lease}", "Leases that ended in another way than by their release"),
		reseeds:     m.count("fencepost.token.reseeds", "{reseed}", "Grants for which Redis had no token counter"),
		regressions: m.count("fencepost.token.regressions", "{regression}", "Grants whose token counter had gone back"),
		retries:     m.count("fencepost.transaction.retries", "{retry}", "Transactions and writes that ran again"),
		stale:       m.count("fencepost.transaction.stale", "{refusal}", "Writes that PostgreSQL refused as overtaken"),
		unknown:     m.count("fencepost.transaction.unknown", "{transaction}", "Transactions and writes of unknown outcome"),
	}
	return i, errors.Join(append(m.errs, err)...)
}

// begin exports counters of what is rare as 0. A counter that began with 1 would have no increase in Prometheus, and no
// alarm would notice the first event.
func (i *instruments) begin(ctx context.Context, attrs []attribute.KeyValue) {
	zero := func(c metric.Int64Counter, more ...attribute.KeyValue) {
		c.Add(ctx, 0, metric.WithAttributes(append(more, attrs...)...))
	}
	for _, reason := range []lease.Reason{
		lease.ReasonExpired, lease.ReasonGone, lease.ReasonTaken, lease.ReasonUnreachable, lease.ReasonClock,
		lease.ReasonMaxHold, lease.ReasonStalled, advisory.ReasonSession, fencepost.ReasonIdle, fencepost.ReasonStale,
	} {
		zero(i.lost, keyReason.String(string(reason)))
	}
	for _, code := range []string{"40001", "40P01"} {
		zero(i.retries, keySQLState.String(code), postgresql)
	}
	zero(i.reseeds)
	zero(i.regressions)
	zero(i.stale, postgresql)
	zero(i.unknown, postgresql)
}

// seconds makes a histogram. Its buckets are those of db.client.operation.duration in the semantic conventions, and
// further ones, since a lease is held and waited for longer than a database's operation takes.
func (m *maker) seconds(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) count(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func record(ctx context.Context, h metric.Float64Histogram, took time.Duration, attrs metric.MeasurementOption) {
	h.Record(ctx, took.Seconds(), attrs)
}

func count(ctx context.Context, c metric.Int64Counter, attrs metric.MeasurementOption) {
	c.Add(ctx, 1, attrs)
}
