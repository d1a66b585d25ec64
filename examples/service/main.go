// Service is a small billing service: an HTTP API, workers that deliver an outbox, a nightly job and an importer. Each
// part is a file of its own.
//
//	export APP_ROLE=billing REDIS_URL=redis://…
//	DATABASE_URL=postgres://owner@… go run ./examples/service migrate
//	DATABASE_URL=postgres://billing@… go run ./examples/service serve   # or: work, nightly, import < charges.csv
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience bounds a request, including its wait for Redis and for other holders. At shutdown it bounds running
// requests.
const patience = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, append(os.Args, "")[1]); err != nil {
		log.Fatal(err)
	}
}

// run runs one command. It closes the pool and the Redis client last, after everything that uses them has returned: a
// lease that is released after that would stay until the end of its TTL.
func run(ctx context.Context, command string) error {
	url := os.Getenv("DATABASE_URL")
	if err := migrate(ctx, url, os.Getenv("APP_ROLE")); err != nil || command == "migrate" {
		return err
	}
	a, err := open(ctx, url, os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	defer a.close()
	switch command {
	case "serve":
		return a.serve(ctx, "127.0.0.1:8080")
	case "work":
		a.work(ctx, 4)
		return nil
	case "nightly":
		return a.nightly(ctx, time.Now().UTC())
	case "import":
		return a.importCSV(ctx, os.Stdin)
	}
	return fmt.Errorf("unknown command %q", command)
}
