package testenv

import (
	"context"
	"errors"
	"flag"
	"os"
)

// serveExamples starts the servers and sets their addresses in the environment of the examples. Without servers the
// examples are left out, as tests are skipped, unless CI=true. The caller must call end.
func serveExamples(ctx context.Context) (end func() error, err error) {
	shared.begin()
	if shared.services == nil {
		if os.Getenv("CI") == "true" {
			return nil, shared.err
		}
		return func() error { return nil }, flag.Set("test.skip", "^Example")
	}
	if shared.err != nil {
		return nil, shared.err
	}
	template, err := shared.server.migrated(ctx)
	if err != nil {
		return nil, err
	}
	name, err := shared.server.create(ctx, template)
	if err != nil {
		return nil, err
	}
	shared.countName("examples")
	end = func() error { return shared.server.drop(ctx, name) }
	err = errors.Join(
		os.Setenv("DATABASE_URL", shared.server.urlOf(name)), os.Setenv("REDIS_URL", shared.services.RedisURL))
	return end, err
}
