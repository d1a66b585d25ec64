package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	defaultPostgresImage = "postgres:17"
	defaultRedisImage    = "redis:8"
)

const (
	enginePatience    = 10 * time.Second // the engine's first answer
	pullPatience      = 5 * time.Minute  // one image
	containerPatience = 90 * time.Second // a container from creation to its server's first answer
)

// docker starts servers in containers.
type docker struct {
	client        client.APIClient
	postgresImage string
	redisImage    string
}

// newDocker finds an engine that answers and is on this machine.
func newDocker(ctx context.Context) (d *docker, err error) {
	// If it finds no engine at all, testcontainers-go has been seen to panic.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("looking for a Docker engine: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	api, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("no Docker engine answers: %w", err)
	}
	d = &docker{
		client:        api,
		postgresImage: cmp.Or(os.Getenv(envPostgresImage), defaultPostgresImage),
		redisImage:    cmp.Or(os.Getenv(envRedisImage), defaultRedisImage),
	}
	// If DOCKER_HOST does not answer, testcontainers-go goes on to other engines.
	if named := os.Getenv("DOCKER_HOST"); named != "" && named != api.DaemonHost() {
		err := errors.New("no Docker engine answers at DOCKER_HOST")
		return nil, errors.Join(err, d.stop(ctx))
	}
	if _, err := api.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("no Docker engine answers: %w", err), d.stop(ctx))
	}
	if !isLocal(api.DaemonHost()) {
		err := errors.New("the Docker engine is on another machine; servers are published on 127.0.0.1 only")
		return nil, errors.Join(err, d.stop(ctx))
	}
	return d, nil
}

// isLocal reports whether an engine's address leads to this machine.
func isLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	switch u.Hostname() {
	case "", "localhost", "127.0.0.1", "::1": // "" is a socket or a named pipe
		return true
	default:
		return false
	}
}

func (d *docker) stop(context.Context) error { return d.client.Close() }

// ready makes sure that both images exist, and pulls those that do not.
func (d *docker) ready(ctx context.Context) error {
	var pgErr, redisErr error
	var both sync.WaitGroup
	both.Go(func() { pgErr = d.ensureImage(ctx, d.postgresImage) })
	both.Go(func() { redisErr = d.ensureImage(ctx, d.redisImage) })
	both.Wait()
	return errors.Join(pgErr, redisErr, d.ensureReaper(ctx))
}

// ensureReaper provides the image of the container that testcontainers-go starts beside our first one, to clean up if
// this process is killed.
func (d *docker) ensureReaper(ctx context.Context) error {
	if testcontainers.ReadConfig().Config.RyukDisabled {
		return nil
	}
	//nolint:staticcheck // deprecated, but nothing else gives the image's name
	err := d.ensureImage(ctx, testcontainers.ReaperDefaultImage)
	if err != nil {
		return fmt.Errorf("%w (TESTCONTAINERS_RYUK_DISABLED=true does without this image)", err)
	}
	return nil
}

// ensureImage pulls an image that the engine does not have. It tries once: without a reachable registry
// testcontainers-go would retry for minutes.
func (d *docker) ensureImage(ctx context.Context, image string) error {
	if testcontainers.ReadConfig().Config.HubImageNamePrefix != "" {
		return nil // the name will change; leave it to testcontainers-go
	}
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	if _, err := d.client.ImageInspect(ctx, image); err == nil {
		return nil
	}
	log.Printf("pulling %s", image)
	options := client.ImagePullOptions{}
	if _, auth, err := testcontainers.DockerImageAuth(ctx, image); err == nil {
		if options.RegistryAuth, err = authconfig.Encode(auth); err != nil {
			return fmt.Errorf("encoding the registry's credentials: %w", err)
		}
	}
	pull, err := d.client.ImagePull(ctx, image, options)
	if err != nil {
		return fmt.Errorf("pulling image %s: %w", image, err)
	}
	defer func() { _ = pull.Close() }()
	// Errors of the pull come as messages, not as read errors.
	if err := pull.Wait(ctx); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("pulling image %s: %w", image, err)
	}
	return nil
}
