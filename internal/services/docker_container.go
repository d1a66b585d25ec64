package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// box is a container with one server in it.
type box struct {
	*testcontainers.DockerContainer
	client client.APIClient
	port   int // on 127.0.0.1
	gone   bool
}

// boxSpec says what to run.
type boxSpec struct {
	image    string
	env      map[string]string
	args     []string
	port     string // in the container, such as "5432/tcp"
	hostPort int    // 0: any
}

// run creates and starts a container. It is owned from the moment it exists.
func (d *docker) run(ctx context.Context, own func(server), s boxSpec) (*box, error) {
	// Not to be cancelled in the middle: the engine would go on and create a
	// container that nobody knows of.
	runCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), containerPatience)
	defer cancel()
	inner, err := network.ParsePort(s.port)
	if err != nil {
		return nil, err
	}
	c, err := testcontainers.Run(runCtx, s.image,
		testcontainers.WithEnv(s.env),
		testcontainers.WithCmd(s.args...),
		testcontainers.WithExposedPorts(s.port),
		testcontainers.WithLabels(map[string]string{"org.fencepost.services": "true"}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{inner: {{
				HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(s.hostPort),
			}}}
		}),
	)
	b := &box{DockerContainer: c, client: d.client, port: s.hostPort}
	if c != nil {
		own(b)
	}
	if err != nil {
		return b, fmt.Errorf("running image %s: %w", s.image, err)
	}
	if s.hostPort == 0 {
		mapped, err := c.MappedPort(runCtx, s.port)
		if err != nil {
			return b, fmt.Errorf("asking for the published port: %w", err)
		}
		b.port = int(mapped.Num())
	}
	return b, ctx.Err()
}

// stop removes the container and its volumes, running, paused or stopped.
func (b *box) stop(ctx context.Context) error {
	if b.gone {
		return nil
	}
	_, _ = b.client.ContainerUnpause(ctx, b.GetContainerID(), client.ContainerUnpauseOptions{})
	// A polite stop would let PostgreSQL write out what is about to be deleted.
	err := b.Terminate(ctx, testcontainers.StopTimeout(0))
	if err != nil {
		return fmt.Errorf("removing a container: %w", err)
	}
	b.gone = true
	return nil
}

// waitFor polls ask until the server answers or the container has ended.
func (b *box) waitFor(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	err := poll(ctx, func() bool { return b.ended(ctx) }, ask)
	if err == nil {
		return nil
	}
	return b.failure(ctx, err)
}

func (b *box) ended(ctx context.Context) bool {
	state, err := b.State(ctx)
	return err == nil && !state.Running
}

// failure explains why a server is not ready, with the end of its container's log.
func (b *box) failure(ctx context.Context, err error) error {
	err = fmt.Errorf("the server in the container does not answer: %w", err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enginePatience)
	defer cancel()
	logs, logErr := b.Logs(ctx)
	if logErr != nil {
		return err
	}
	defer func() { _ = logs.Close() }()
	text, _ := io.ReadAll(io.LimitReader(logs, 1<<20))
	if tail := trimTail(text); tail != "" {
		return fmt.Errorf("%w; its log ends:\n%s", err, tail)
	}
	return err
}

func (d *docker) startPostgres(ctx context.Context, own func(server), durable bool) (string, string, error) {
	password := randomPassword()
	b, err := d.run(ctx, own, boxSpec{
		image: d.postgresImage,
		env: map[string]string{
			"POSTGRES_USER": postgresUser, "POSTGRES_PASSWORD": password, "POSTGRES_DB": "postgres",
			"POSTGRES_INITDB_ARGS": "--no-sync",
		},
		args: postgresSettings(durable),
		port: "5432/tcp",
	})
	if err != nil {
		return "", "", err
	}
	address := postgresURL(b.port, password)
	var version string
	err = b.waitFor(ctx, func(ctx context.Context) (err error) {
		version, err = askPostgres(ctx, address)
		return err
	})
	return address, version + ", Docker image " + d.postgresImage, err
}

// dockerRedis is a Redis in a container, killed and started many times.
type dockerRedis struct {
	d    *docker
	args []string
	port int
	own  func(server)
	now  *box
}

func (d *docker) startRedis(ctx context.Context, own func(server), args []string) (redisServer, string, string, error) {
	if err := errors.Join(d.ensureImage(ctx, d.redisImage), d.ensureReaper(ctx)); err != nil {
		return nil, "", "", err
	}
	r := &dockerRedis{d: d, args: args, own: own}
	var version string
	var err error
	for range portTries {
		// A port of the engine's choice would be another one after each start.
		if r.port, err = freePort(); err != nil {
			return nil, "", "", err
		}
		if version, err = r.run(ctx); err == nil {
			return r, redisURL(r.port), version + ", Docker image " + d.redisImage, nil
		}
		if r.now == nil || r.now.DockerContainer == nil || r.now.IsRunning() {
			break // not a matter of the port
		}
	}
	return nil, "", "", err
}

func (r *dockerRedis) run(ctx context.Context) (version string, err error) {
	r.now, err = r.d.run(ctx, r.own, boxSpec{
		image: r.d.redisImage,
		// The container's own loopback is of no use, and 127.0.0.1 outside is where
		// its port ends. Arguments of the caller come last and win.
		args: append([]string{
			"redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "",
		}, r.args...),
		port: "6379/tcp", hostPort: r.port,
	})
	if err != nil {
		return "", err
	}
	return r.wait(ctx)
}

func (r *dockerRedis) wait(ctx context.Context) (version string, err error) {
	err = r.now.waitFor(ctx, func(ctx context.Context) error {
		info, err := askRedis(ctx, redisURL(r.port))
		version = info.version
		return err
	})
	return version, err
}

func (r *dockerRedis) kill(ctx context.Context) error {
	id := r.now.GetContainerID()
	// A frozen process does not notice that it was killed.
	_, _ = r.d.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if _, err := r.d.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	return poll(ctx, nil, func(ctx context.Context) error {
		if !r.now.ended(ctx) {
			return errors.New("the container is still running")
		}
		return nil
	})
}

func (r *dockerRedis) start(ctx context.Context, empty bool) error {
	if !r.now.ended(ctx) {
		return errors.New("redis is running")
	}
	if empty {
		// The data lies in the container, or in a volume that goes with it.
		if err := r.now.stop(ctx); err != nil {
			return err
		}
		_, err := r.run(ctx)
		return err
	}
	_, err := r.d.client.ContainerStart(ctx, r.now.GetContainerID(), client.ContainerStartOptions{})
	if err != nil {
		return err
	}
	_, err = r.wait(ctx)
	return err
}

func (r *dockerRedis) pause(ctx context.Context) error {
	_, err := r.d.client.ContainerPause(ctx, r.now.GetContainerID(), client.ContainerPauseOptions{})
	return err
}

func (r *dockerRedis) resume(ctx context.Context) error {
	_, err := r.d.client.ContainerUnpause(ctx, r.now.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}
