package compare

import (
	"context"
	"errors"

	"github.com/fencepost-pg/fencepost/bench/compare/measure"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// measure adds to the report what each mode costs. Nothing else runs meanwhile.
func (r *run) measure(ctx context.Context, found *report.Report) (err error) {
	database, err := r.databases.create(ctx)
	defer func() { err = errors.Join(err, r.databases.drop(ctx, database)) }()
	if err != nil {
		return err
	}
	o := measure.Options{
		PostgresURL: r.databases.address(database), Modes: chosen(r.options.Modes, report.Modes()), Quick: r.options.Quick,
		Progress: func(_, _ int, what string) { r.tell(0, "measuring "+what) },
	}
	for range quorumServers {
		server, err := r.singles.take(ctx)
		if err != nil {
			return err
		}
		o.RedisURLs = append(o.RedisURLs, server.URL()) // they are not needed any more afterwards
	}
	result, err := measure.Run(ctx, &o)
	if err != nil {
		return err
	}
	found.Modes, found.Figures = result.Modes, result.Figures
	r.tell(1, "measured")
	return nil
}
