package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// nodeSpec is one server of a topology, as the user process requests it.
type nodeSpec struct {
	Program  string   `json:",omitempty"` // name in PATH; default redis-server, else valkey-server
	Args     []string `json:",omitempty"` // additional arguments; not for a sentinel
	Bus      bool     `json:",omitempty"` // in a cluster: the port 10000 above must be free too
	Sentinel string   `json:",omitempty"` // a sentinel with these lines in its configuration
}

// startNodes starts servers one after another, so that none takes a port that was found free for another. It never uses
// Docker: the nodes of one topology must reach each other, and be reached, at the same addresses.
func (h *host) startNodes(ctx context.Context, r request) (a answer, err error) {
	p, err := h.localOnce(ctx)
	if err != nil {
		return answer{}, err
	}
	for _, spec := range r.Nodes {
		node, url, description, err := h.startNode(ctx, p, spec)
		if err != nil {
			return answer{}, fmt.Errorf("starting node %d: %w", len(h.nodes), err)
		}
		h.nodes = append(h.nodes, node)
		a.NodeURLs = append(a.NodeURLs, url)
		a.Redis = description
	}
	return a, nil
}

// localOnce returns the platform of installed programs: one folder for all nodes.
func (h *host) localOnce(ctx context.Context) (*local, error) {
	h.mu.Lock()
	for _, s := range h.servers {
		if p, ok := s.(*local); ok {
			h.mu.Unlock()
			return p, nil
		}
	}
	h.mu.Unlock()
	p, err := newLocal(ctx)
	if err != nil {
		return nil, err
	}
	h.own(p)
	return p, nil
}

func (h *host) startNode(
	ctx context.Context,
	l *local,
	spec nodeSpec,
) (node ownedServer, url, description string, err error) {
	path, err := findRedis()
	if spec.Program != "" {
		path, err = findProgram(spec.Program)
	}
	if err != nil {
		return nil, "", "", err
	}
	name := "node" + strconv.Itoa(len(h.nodes))
	dir, err := l.folder(name)
	if err != nil {
		return nil, "", "", err
	}
	r := &localRedis{l: l, path: path, dir: dir, args: spec.Args}
	node, run := ownedServer(r), r.run
	if spec.Sentinel != "" {
		s := &localSentinel{localRedis: r, config: spec.Sentinel}
		node, run = s, s.run
	}
	h.own(r)
	var version string
	err = onFreePort(func(port int) (*serverProcess, error) {
		if r.port = port; spec.Bus {
			if r.port, err = portWithBus(); err != nil {
				return nil, err
			}
		}
		version, err = run(ctx)
		return r.now, err
	})
	return node, redisURL(r.port), version + ", local binary " + path, err
}

// busOffset is the distance from a cluster node's port to its bus port. From 7.0 on it can be set; leaving it alone
// lets older versions work too.
const busOffset = 10_000

// portWithBus finds a port that is free and whose bus port is free too.
func portWithBus() (int, error) {
	for range 100 {
		port, err := freePort()
		if err != nil {
			return 0, err
		}
		if port+busOffset > 65_535 {
			continue
		}
		bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset)))
		if err != nil {
			continue
		}
		return port, bus.Close()
	}
	return 0, errors.New("no free port with a free bus port")
}

// localSentinel is a sentinel. It writes what it learns to its configuration file.
type localSentinel struct {
	*localRedis
	config string
}

func (s *localSentinel) run(ctx context.Context) (version string, err error) {
	path := filepath.Join(s.dir, "sentinel.conf")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := s.l.file(path, s.config); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	s.now, err = startProcess(processSpec{name: "sentinel", path: s.path, dir: s.dir, user: s.l.user, args: []string{
		path, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
	}})
	if err != nil {
		return "", err
	}
	err = poll(ctx, s.now.ended, func(ctx context.Context) error {
		info, err := askRedis(ctx, redisURL(s.port))
		if err == nil && info.pid != s.now.pid {
			return errors.New("another server answers on the port")
		}
		version = info.version
		return err
	})
	if err != nil {
		return "", s.now.failure(err)
	}
	return version, nil
}

// start restarts a sentinel with what it knew, or without.
func (s *localSentinel) start(ctx context.Context, empty bool) error {
	if !s.now.ended() {
		return errors.New("the sentinel is running")
	}
	if empty {
		if err := removeContents(s.dir); err != nil {
			return fmt.Errorf("emptying the sentinel's folder: %w", err)
		}
	}
	_, err := s.run(ctx)
	return err
}
