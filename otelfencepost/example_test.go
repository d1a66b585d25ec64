package otelfencepost_test

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// A store that reports to the global providers. README.md shows this code.
func ExampleNew() {
	connect := func(pool *pgxpool.Pool, rdb redis.UniversalClient) (*fencepost.Store, error) {
		exporter, err := prometheus.New() // go.opentelemetry.io/otel/exporters/prometheus, or any other
		if err != nil {
			return nil, err
		}
		otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))) // go.opentelemetry.io/otel/sdk/metric
		events, err := otelfencepost.New(nil)
		if err != nil {
			return nil, err
		}
		return fencepost.New(pool, rdb, &fencepost.Options{Namespace: "billing", Events: events})
	}
	_ = connect
}
