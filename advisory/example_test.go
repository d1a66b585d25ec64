package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
)

// Two processes without Redis: the second finds the resource held.
func ExampleLocker() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	open := func(label string) *advisory.Locker {
		locker, err := advisory.NewLocker(pool, &advisory.Options{Namespace: "billing", Label: label})
		if err != nil {
			panic(err)
		}
		return locker
	}

	first, err := open("worker 1").Acquire(ctx, "nightly", nil)
	if err != nil {
		panic(err)
	}
	_, err = open("worker 2").TryAcquire(ctx, "nightly", nil)
	fmt.Println(errors.Is(err, advisory.ErrHeld))
	fmt.Println(first.Release(ctx))
	fmt.Println(errors.Is(context.Cause(first.Context()), advisory.ErrReleased))
	// Output:
	// true
	// <nil>
	// true
}
