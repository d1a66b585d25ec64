package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
)

// A lease alone keeps workers out of each other's way, and its tokens rise. The resource itself has to refuse workers
// that have been overtaken: see package fence.
func ExampleManager() {
	ctx := context.Background()
	address, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(address)
	defer func() { _ = client.Close() }()
	prefix := fmt.Sprint("example-", time.Now().UnixNano()) // a service uses a fixed prefix
	leases, err := lease.NewManager(client, &lease.Options{Prefix: prefix, Label: "worker 1"})
	if err != nil {
		panic(err)
	}

	first, err := leases.Acquire(ctx, "import", 30*time.Second, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println("token", first.Token())

	_, err = leases.TryAcquire(ctx, "import", 30*time.Second, nil)
	var held *lease.HeldError
	fmt.Println(errors.As(err, &held) && held.Label == "worker 1")

	fmt.Println(first.Release(ctx))
	fmt.Println(errors.Is(context.Cause(first.Context()), lease.ErrReleased))

	second, err := leases.Acquire(ctx, "import", 30*time.Second, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = second.Release(ctx) }()
	fmt.Println("token", second.Token())
	// Output:
	// token 1
	// true
	// <nil>
	// true
	// token 2
}
