package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// RunHostIfAsked serves as a host and exits if this process was started as one, and otherwise returns at once. It must
// be the first call in main, and in TestMain, of every program that starts servers.
func RunHostIfAsked() {
	if os.Getenv(hostEnv) == "" {
		return
	}
	os.Exit(runHost(os.Stdin, os.Stdout))
}

// server is a server that the host has started and must stop.
type server interface {
	// stop ends the server and waits until it has exited. Data is not kept.
	stop(ctx context.Context) error
}

// ownedServer is a server that can be killed, paused and restarted.
type ownedServer interface {
	kill(ctx context.Context) error
	start(ctx context.Context, empty bool) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
}

// platform starts servers by one of the ways.
type platform interface {
	startPostgres(
		ctx context.Context,
		own func(server),
		spec postgresSpec,
	) (pg ownedServer, url, description string, err error)
	startRedis(ctx context.Context, own func(server), args []string) (r ownedServer, url, description string, err error)
	// ready checks that both servers can be started, before either is.
	ready(ctx context.Context) error
	stop(ctx context.Context) error
}

// host is the process that owns servers. It serves requests one at a time; mu is for servers that start in parallel
// within one request.
type host struct {
	mu      sync.Mutex
	servers []server
	hurt    ownedServer   // of opRedis and opPostgres, the one that later requests act on
	nodes   []ownedServer // of opNodes, likewise by number
}

func runHost(in io.Reader, out io.Writer) (code int) {
	// A write to a dead user process must fail and not kill us. Notify, not Ignore: children inherit what is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	h := &host{}
	defer func() {
		if err := h.stop(); err != nil {
			log.Print(err)
			code = 1
		}
	}()
	requests := readRequests(in, cancel)
	for {
		select {
		case <-ctx.Done():
			return 0
		case r := <-requests:
			a, err := h.serve(ctx, r)
			if err != nil {
				a.Error = err.Error()
			}
			if err := json.NewEncoder(out).Encode(a); err != nil {
				log.Print(err)
				return 0
			}
		}
	}
}

// readRequests calls ended when input ends. This is how the end of the user process is noticed, even while a request is
// being served.
func readRequests(in io.Reader, ended func()) <-chan request {
	requests := make(chan request)
	go func() {
		defer ended()
		err := process.Orders(json.NewDecoder(in), func(r request) error {
			requests <- r
			return nil
		})
		if !errors.Is(err, process.ErrNoParent) {
			log.Print(err)
		}
	}()
	return requests
}

func (h *host) own(s server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = append(h.servers, s)
}

func (h *host) serve(ctx context.Context, r request) (answer, error) {
	switch r.Op {
	case opServices:
		return h.startServices(ctx, r)
	case opRedis:
		return h.startRedis(ctx, r)
	case opPostgres:
		return h.startPostgres(ctx, r)
	case opProbe:
		return answer{}, h.probe(ctx, r)
	case opPgBouncer:
		return h.startPgBouncer(ctx, r)
	case opPgpool:
		return h.startPgpool(ctx, r)
	case opPostgresPair:
		return h.startPostgresPair(ctx, r)
	case opNodes:
		return h.startNodes(ctx, r)
	case opFollow:
		return answer{}, h.follow(ctx, r.Node)
	default:
		return answer{}, h.hurtServer(ctx, r)
	}
}

func (h *host) platform(ctx context.Context, w Way) (platform, error) {
	var p platform
	var err error
	switch w {
	case WayDocker:
		p, err = newDocker(ctx)
	case WayLocal:
		p, err = newLocal(ctx)
	default:
		err = fmt.Errorf("way %q starts nothing", w)
	}
	if err != nil {
		return nil, err
	}
	h.own(p)
	return p, nil
}

func (h *host) startServices(ctx context.Context, r request) (a answer, err error) {
	p, err := h.platform(ctx, r.Way)
	if err != nil {
		return answer{}, err
	}
	if err := p.ready(ctx); err != nil {
		return answer{}, err
	}
	var pgErr, redisErr error
	var both sync.WaitGroup
	both.Go(func() { _, a.PostgresURL, a.Postgres, pgErr = p.startPostgres(ctx, h.own, sharedPostgres(r.Durable)) })
	both.Go(func() { _, a.RedisURL, a.Redis, redisErr = p.startRedis(ctx, h.own, nil) })
	both.Wait()
	if err := errors.Join(pgErr, redisErr); err != nil {
		return answer{}, err
	}
	return a, nil
}

func (h *host) startRedis(ctx context.Context, r request) (a answer, err error) {
	p, err := h.platform(ctx, r.Way)
	if err != nil {
		return answer{}, err
	}
	h.hurt, a.RedisURL, a.Redis, err = p.startRedis(ctx, h.own, r.Args)
	return a, err
}

func (h *host) startPostgres(ctx context.Context, r request) (a answer, err error) {
	p, err := h.platform(ctx, r.Way)
	if err != nil {
		return answer{}, err
	}
	spec := postgresSpec{args: append(postgresSettings(r.Durable), r.Args...)}
	h.hurt, a.PostgresURL, a.Postgres, err = p.startPostgres(ctx, h.own, spec)
	return a, err
}

func (h *host) probe(ctx context.Context, r request) error {
	p, err := h.platform(ctx, r.Way)
	if err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	_, _, _, err = p.startRedis(ctx, h.own, nil)
	return err
}

func (h *host) hurtServer(ctx context.Context, r request) error {
	server := h.hurt
	if r.Node < len(h.nodes) {
		server = h.nodes[r.Node]
	}
	if server == nil {
		return errors.New("there is no such server")
	}
	ctx, cancel := context.WithTimeout(ctx, hurtPatience)
	defer cancel()
	switch r.Op {
	case opKill:
		return server.kill(ctx)
	case opShut:
		clean, ok := server.(interface {
			shut(ctx context.Context) error
		})
		if !ok {
			return errors.New("this server is not shut down cleanly")
		}
		return clean.shut(ctx)
	case opStart:
		return server.start(ctx, r.Empty)
	case opPause:
		return server.pause(ctx)
	case opResume:
		return server.resume(ctx)
	default:
		return fmt.Errorf("request %q is not known", r.Op)
	}
}

// stop ends everything, last started first, so that folders outlive the servers that use them.
func (h *host) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience-5*time.Second)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for i := len(h.servers) - 1; i >= 0; i-- {
		errs = append(errs, h.servers[i].stop(ctx))
	}
	h.servers = nil
	return errors.Join(errs...)
}
