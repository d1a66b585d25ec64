package services_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// TestAPairFailsOverWithALoss: data written after HoldBack is gone once the replica is promoted, and Restore makes the
// pair as it was, repeatedly.
func TestAPairFailsOverWithALoss(t *testing.T) {
	t.Parallel()
	p, err := services.StartPair(t.Context())
	mustBeInstalled(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	ctx := t.Context()
	for range 2 {
		primary, replica := client(t, p.Primary.URL()), client(t, p.Replica.URL())
		if n, err := replica.DBSize(ctx).Result(); n != 0 || err != nil {
			t.Fatalf("the pair begins with %d keys: %v", n, err)
		}
		if err := primary.Set(ctx, "early", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := p.HoldBack(ctx); err != nil {
			t.Fatal(err)
		}
		if err := primary.Set(ctx, "late", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Primary.Kill(ctx), p.Promote(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := replica.Get(ctx, "early").Err(); err != nil {
			t.Errorf("what the replica had is gone: %v", err)
		}
		if err := replica.Get(ctx, "late").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("the replica does not lag: %v", err)
		}
		if err := replica.Set(ctx, "later", 1, 0).Err(); err != nil {
			t.Errorf("the replica takes no writes: %v", err)
		}
		if err := p.Restore(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
