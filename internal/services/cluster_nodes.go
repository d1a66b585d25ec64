package services

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotInstalled is the error of a start for which a program is not in PATH; the text says which.
var ErrNotInstalled = errors.New("not installed")

// Node is one server of a topology, to be hurt. Its methods take turns with those of the other nodes and may
// be called from several goroutines.
type Node struct {
	host   *hostProcess
	number int
	url    string
}

// URL returns its redis:// address, the same for its whole life.
func (n *Node) URL() string { return n.url }

// Addr returns its address as host:port.
func (n *Node) Addr() string {
	addr, _, _ := strings.Cut(strings.TrimPrefix(n.url, "redis://"), "/")
	return addr
}

// Kill ends the server by SIGKILL: nothing is saved, no client is told goodbye.
func (n *Node) Kill(ctx context.Context) error { return n.order(ctx, request{Op: opKill}) }

// Start starts it again after Kill, on the same port and with what is left on disk of its data, and returns
// once it answers. A node of a cluster is the one it was, and a sentinel knows what it knew.
func (n *Node) Start(ctx context.Context) error { return n.order(ctx, request{Op: opStart}) }

// Pause stops the server in mid-run: connections stay, nothing is answered.
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
		Addr: n.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}

// do runs one command on the node.
func (n *Node) do(ctx context.Context, args ...any) error {
	c := n.dial()
	defer func() { _ = c.Close() }()
	return c.Do(ctx, args...).Err()
}

// replication returns what the server says about whom it follows and who follows it.
func (n *Node) replication(ctx context.Context) (map[string]string, error) {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.Info(ctx, "replication").Result()
	return parseInfo(text), err
}

// startNodes starts a host with servers, or gives one that there is (h not nil) more of them.
// Numbered says how many it has.
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

// installed sees that there are programs before a host is started for them.
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

// StartProgram starts a single server of an installed program, such as valkey-server, with further
// arguments. Unlike [StartRedis] it looks for no other way. Ctx bounds the start only. The caller must Close
// the result.
//
// Errors: [ErrNotInstalled] where program is not in PATH.
func StartProgram(ctx context.Context, program string, args ...string) (*Redis, error) {
	h, nodes, description, err := startNodes(ctx, nil, 0, nodeSpec{Program: program, Args: args})
	if err != nil {
		return nil, err
	}
	return &Redis{host: h, url: nodes[0].url, Description: description}, nil
}
