package otelfencepost_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	metric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// BenchmarkDo measures the events of one Do: acquired, claimed, transacted, released.
func BenchmarkDo(b *testing.B) {
	reader := metric.WithReader(metric.NewManualReader())
	for name, opts := range map[string]otelfencepost.Options{
		"metrics":         {MeterProvider: metric.NewMeterProvider(reader)},
		"traces, sampled": {MeterProvider: noop.NewMeterProvider(), TracerProvider: trace.NewTracerProvider()},
		"traces, unsampled": {
			MeterProvider:  noop.NewMeterProvider(),
			TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())),
		},
	} {
		b.Run(name, func(b *testing.B) {
			events, err := otelfencepost.New(&opts)
			if err != nil {
				b.Fatal(err)
			}
			ctx, names := b.Context(), []string{"r"}
			b.ReportAllocs()
			for b.Loop() {
				events.ClaimWait(ctx, "r", 1, time.Millisecond)
				events.Acquired(ctx, "r", 1, time.Millisecond)
				events.Transacted(ctx, names, time.Millisecond, nil)
				events.Released(ctx, "r", 1, time.Millisecond)
			}
		})
	}
}
