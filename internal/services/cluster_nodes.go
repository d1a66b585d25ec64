package services

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotInstalled means that a start needs a program that is not in PATH; the text names it.
var ErrNotInstalled = errors.New("not installed")

// Node is one server of a topology, to be killed or paused. Its methods take turns with those of the other nodes and
// may be called from several goroutines.
type Node struct {
	host   *hostProcess
	number int
	url    string
}

// URL returns its redis:// address, which never changes.
func (n *Node) URL() string { return n.url }

// Addr returns its address as host:port.
func (n *Node) Addr() string {
	addr, _, _ := strings.Cut(strings.TrimPrefix(n.url, "redis://"), "/")
	return addr
}

// Kill ends the server by SIGKILL: nothing is saved, and clients get no notice.
func (n *Node) Kill(ctx context.Context) error { return n.order(ctx, request{Op: opKill}) }

// Start restarts it after Kill, on the same port and with the data that is left on disk, and returns once it answers. A
// node of a cluster keeps its identity, and a sentinel keeps what it knew.
func (n *Node) Start(ctx context.Context) error { return n.order(ctx, request{Op: opStart}) }

// Pause stops the server (SIGSTOP): connections stay open, but nothing is answered.
func (n *Node) Pause(ctx context.Context) error { return n.order(ctx, request{Op: opPause}) }

// Resume ends Pause.
func (n *Node) Resume(ctx context.Context) error { return n.order(ctx, request{Op: opResume}) }

func (n *Node) order(ctx context.Context, r request) error {
	r.Node = n.number
	_, err := n.host.call(ctx, r)
	return err
}

// dial returns a client of the node for a few administrative commands. The caller must Close it.
func (n *Node) dial() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: n.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}

// do runs one command on the node.
func (n *Node) do(ctx context.Context, args ...any) error {
	c := n.dial()
	defer func() { _ = c.Close() }()
	return c.Do(ctx, args...).Err()
}

// replication returns what the server reports about its replication.
func (n *Node) replication(ctx context.Context) (map[string]string, error) {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.Info(ctx, "replication").Result()
	return parseInfo(text), err
}

// startNodes starts a host with servers, or adds servers to an existing one (h not nil), which then has numbered
// servers already.
func startNodes(ctx context.Context, h *hostProcess, numbered int, specs ...nodeSpec) (
	host *hostProcess, nodes []*Node, description string, err error,
) {
	r := request{Op: opNodes, Nodes: specs}
	var a answer
	if h == nil {
		if err := installed(specs); err != nil {
			return nil, nil, "", err
		}
		h, a, err = startHost(ctx, r)
	} else {
		a, err = h.call(ctx, r)
	}
	if err != nil {
		return nil, nil, "", err
	}
	nodes = make([]*Node, len(a.NodeURLs))
	for i, url := range a.NodeURLs {
		nodes[i] = &Node{host: h, number: numbered + i, url: url}
	}
	return h, nodes, a.Redis, nil
}

// installed checks that the programs exist before a host is started for them.
func installed(specs []nodeSpec) error {
	for _, spec := range specs {
		_, err := findRedis()
		if spec.Program != "" {
			_, err = findProgram(spec.Program)
		}
		if err != nil {
			return errors.Join(ErrNotInstalled, err)
		}
	}
	return nil
}

// StartProgram starts a single server of an installed program, such as valkey-server, with additional arguments. Unlike
// [StartRedis] it tries no other way. Ctx bounds the start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] if program is not in PATH.
func StartProgram(ctx context.Context, program string, args ...string) (*Redis, error) {
	h, nodes, description, err := startNodes(ctx, nil, 0, nodeSpec{Program: program, Args: args})
	if err != nil {
		return nil, err
	}
	return &Redis{host: h, url: nodes[0].url, Description: description}, nil
}
