package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-pg/fencepost/internal/process"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// demoCommands are the demo and the hidden command with which it starts its workers.
type demoCommands struct {
	Demo       demoCommand       `cmd:"" help:"Show on real servers that PostgreSQL refuses a writer that was stopped past its lease, and what happens otherwise."`
	DemoWorker demoWorkerCommand `cmd:"" hidden:"" help:"Be a worker of the demo, which starts it."`
}

type demoCommand struct {
	JSON bool `name:"json" help:"Print one JSON object with both ends; the timeline goes to standard error."`
}

// Help says where the servers come from.
func (*demoCommand) Help() string {
	return `It takes the first of: servers at $FENCEPOST_POSTGRES_URL and $FENCEPOST_REDIS_URL; a Docker engine that ` +
		`answers; installed postgres and redis-server or valkey-server programs. $FENCEPOST_SERVICES=url, docker or local ` +
		`forces one. What it starts or creates it also removes. Exit status 0: both plays ended as told.

Examples:

  fencepost demo
  FENCEPOST_SERVICES=local fencepost demo --json`
}

// demoResult is what demo --json prints.
type demoResult struct {
	demo.Result
	Services demoServices `json:"services"`
	Error    string       `json:"error,omitempty"`
}

// demoServices describe the servers for people.
type demoServices struct {
	Postgres string `json:"postgres"`
	Redis    string `json:"redis"`
}

// Run plays the demo.
func (c *demoCommand) Run(ctx context.Context, std *streams) error {
	ctx, stop := untilHangUp(ctx)
	defer stop()
	people := std.out
	if c.JSON {
		people = std.err
	}
	result, err := playDemo(ctx, people)
	if c.JSON {
		result.Error = errorText(err)
		return errors.Join(err, std.printJSON(result))
	}
	return err
}

// playDemo finds servers, plays on them, and shows people what happens.
func playDemo(ctx context.Context, people io.Writer) (result demoResult, err error) {
	if err := demo.Supported(); err != nil {
		return result, err
	}
	worker, err := process.Self("demo-worker")
	if err != nil {
		return result, err
	}
	servers, err := services.Start(ctx, nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	result.Services = demoServices{Postgres: servers.Postgres, Redis: servers.Redis}
	if _, err := fmt.Fprintln(people, servers); err != nil {
		return result, fmt.Errorf("write the result: %w", err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeline := demo.NewTimeline(people, inColor(people))
	played, err := demo.Run(ctx, &demo.Options{
		PostgresURL: servers.PostgresURL, RedisURL: servers.RedisURL,
		Worker: worker,
		Watch: func(kind demo.Kind, e demo.Event) {
			timeline.Watch(kind, e)
			if err := timeline.Err(); err != nil {
				cancel(fmt.Errorf("write the result: %w", err)) // the reader has gone away
			}
		},
	})
	result.Result = *played
	timeline.End(played)
	if err == nil {
		err = timeline.Err()
	}
	return result, err
}

type demoWorkerCommand struct{}

// Run plays the worker. Errors of its work are among its reports.
func (*demoWorkerCommand) Run(ctx context.Context, std *streams) error {
	return demo.RunWorker(ctx, std.in, std.out)
}
