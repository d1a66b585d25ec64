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

// runningContainer is a container with one server in it.
type runningContainer struct {
	*testcontainers.DockerContainer
	client client.APIClient
	port   int // on 127.0.0.1
	gone   bool
}

// containerSpec says what to run.
type containerSpec struct {
	image    string
	env      map[string]string
	args     []string
	port     string // in the container, such as "5432/tcp"
	hostPort int    // 0: any
	memory   string // a folder in the container to be kept in memory; "" for none
}

// run creates and starts a container. It is owned from the moment it exists.
func (d *docker) run(ctx context.Context, own func(server), s containerSpec) (*runningContainer, error) {
	// Must not be cancelled halfway: the engine would continue and create a container that nobody knows of.
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
			if s.memory != "" {
				h.Tmpfs = map[string]string{s.memory: fmt.Sprintf("size=%d", enoughMemory)}
			}
		}),
	)
	b := &runningContainer{DockerContainer: c, client: d.client, port: s.hostPort}
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
func (b *runningContainer) stop(ctx context.Context) error {
	if b.gone {
		return nil
	}
	_, _ = b.client.ContainerUnpause(ctx, b.GetContainerID(), client.ContainerUnpauseOptions{})
	// A graceful stop would let PostgreSQL write out data that is about to be deleted.
	err := b.Terminate(ctx, testcontainers.StopTimeout(0))
	if err != nil {
		return fmt.Errorf("removing a container: %w", err)
	}
	b.gone = true
	return nil
}

// waitFor polls ask until the server answers or the container has ended.
func (b *runningContainer) waitFor(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	err := poll(ctx, func() bool { return b.ended(ctx) }, ask)
	if err == nil {
		return nil
	}
	return b.failure(ctx, err)
}

func (b *runningContainer) ended(ctx context.Context) bool {
	state, err := b.State(ctx)
	return err == nil && !state.Running
}

// failure explains why a server is not ready, with the end of its container's log.
func (b *runningContainer) failure(ctx context.Context, err error) error {
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

// onPort calls start with free ports until it succeeds. It repeats only if the container ended by itself, as it does
// when its port is taken. A port that the engine chooses would change with each start.
func (d *docker) onPort(start func(port int) (*runningContainer, error)) error {
	var err error
	for range portTries {
		var port int
		if port, err = freePort(); err != nil {
			return err
		}
		var b *runningContainer
		b, err = start(port)
		if err == nil || b == nil || b.DockerContainer == nil || b.IsRunning() {
			return err
		}
	}
	return err
}

// endBy sends a signal to a container's server and waits until the container has ended.
func (b *runningContainer) endBy(ctx context.Context, signal string) error {
	id := b.GetContainerID()
	// A frozen process does not notice that it was killed.
	_, _ = b.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if _, err := b.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	return poll(ctx, nil, func(ctx context.Context) error {
		if !b.ended(ctx) {
			return errors.New("the container is still running")
		}
		return nil
	})
}

// again restarts a container that has ended, with the data that is left.
func (b *runningContainer) again(ctx context.Context) error {
	_, err := b.client.ContainerStart(ctx, b.GetContainerID(), client.ContainerStartOptions{})
	return err
}

func (b *runningContainer) pause(ctx context.Context) error {
	_, err := b.client.ContainerPause(ctx, b.GetContainerID(), client.ContainerPauseOptions{})
	return err
}

func (b *runningContainer) resume(ctx context.Context) error {
	_, err := b.client.ContainerUnpause(ctx, b.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

// dockerPostgres is a PostgreSQL in a container that is ended and started many times.
type dockerPostgres struct {
	*runningContainer
	password string
}

func (d *docker) startPostgres(
	ctx context.Context,
	own func(server),
	spec postgresSpec,
) (ownedServer, string, string, error) {
	if err := errors.Join(d.ensureImage(ctx, d.postgresImage), d.ensureReaper(ctx)); err != nil {
		return nil, "", "", err
	}
	s := &dockerPostgres{password: randomPassword()}
	env := map[string]string{
		"POSTGRES_USER": postgresUser, "POSTGRES_PASSWORD": s.password, "POSTGRES_DB": "postgres",
		"POSTGRES_INITDB_ARGS": "--no-sync",
	}
	var memory string
	if spec.inMemory && memoryLeft() >= enoughMemory {
		memory = "/fencepost"
		env["PGDATA"] = memory + "/data"
	}
	var version string
	err := d.onPort(func(port int) (_ *runningContainer, err error) {
		s.runningContainer, err = d.run(ctx, own, containerSpec{
			image: d.postgresImage, env: env, args: spec.args, memory: memory,
			port: "5432/tcp", hostPort: port,
		})
		if err == nil {
			version, err = s.wait(ctx)
		}
		return s.runningContainer, err
	})
	if err == nil {
		err = fewRounds(ctx, postgresURL(s.port, s.password), s.password)
	}
	if err != nil {
		return nil, "", "", err
	}
	return s, postgresURL(s.port, s.password), version + ", Docker image " + d.postgresImage, nil
}

func (s *dockerPostgres) wait(ctx context.Context) (version string, err error) {
	err = s.waitFor(ctx, func(ctx context.Context) (err error) {
		version, err = askPostgres(ctx, postgresURL(s.port, s.password))
		return err
	})
	return version, err
}

// kill is PostgreSQL's immediate shutdown: data that had not reached the disk is lost, as in a crash.
func (s *dockerPostgres) kill(ctx context.Context) error { return s.endBy(ctx, "SIGQUIT") }

func (s *dockerPostgres) shut(ctx context.Context) error { return s.endBy(ctx, "SIGINT") }

func (s *dockerPostgres) start(ctx context.Context, empty bool) error {
	if empty {
		return errors.New("postgres cannot be started without its data")
	}
	if !s.ended(ctx) {
		return errors.New("postgres is running")
	}
	if err := s.again(ctx); err != nil {
		return err
	}
	_, err := s.wait(ctx)
	return err
}

// dockerRedis is a Redis in a container that is killed and started many times.
type dockerRedis struct {
	d    *docker
	args []string
	port int
	own  func(server)
	now  *runningContainer
}

func (d *docker) startRedis(ctx context.Context, own func(server), args []string) (ownedServer, string, string, error) {
	if err := errors.Join(d.ensureImage(ctx, d.redisImage), d.ensureReaper(ctx)); err != nil {
		return nil, "", "", err
	}
	r := &dockerRedis{d: d, args: args, own: own}
	var version string
	err := d.onPort(func(port int) (_ *runningContainer, err error) {
		r.port = port
		version, err = r.run(ctx)
		return r.now, err
	})
	if err != nil {
		return nil, "", "", err
	}
	return r, redisURL(r.port), version + ", Docker image " + d.redisImage, nil
}

func (r *dockerRedis) run(ctx context.Context) (version string, err error) {
	r.now, err = r.d.run(ctx, r.own, containerSpec{
		image: r.d.redisImage,
		// The container's own loopback is useless, and 127.0.0.1 outside is where its port is published. The caller's
		// arguments come last and win.
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

func (r *dockerRedis) kill(ctx context.Context) error { return r.now.endBy(ctx, "SIGKILL") }

func (r *dockerRedis) start(ctx context.Context, empty bool) error {
	if !r.now.ended(ctx) {
		return errors.New("redis is running")
	}
	if empty {
		// The data is in the container, or in a volume that is removed with it.
		if err := r.now.stop(ctx); err != nil {
			return err
		}
		_, err := r.run(ctx)
		return err
	}
	if err := r.now.again(ctx); err != nil {
		return err
	}
	_, err := r.wait(ctx)
	return err
}

func (r *dockerRedis) pause(ctx context.Context) error  { return r.now.pause(ctx) }
func (r *dockerRedis) resume(ctx context.Context) error { return r.now.resume(ctx) }
