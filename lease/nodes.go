package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// quorum runs the scripts on all nodes in parallel and counts.
type quorum struct {
	nodes    []*node
	majority int
	timeout  time.Duration
	opts     Options
}

// node is one of the servers.
type node struct {
	scripts *scripts
	room    chan struct{} // bounds the calls that hang on this node

	mu    sync.Mutex
	runID string // of the server; "?" where it may not be asked
}

// maxHanging bounds the calls under way on one node: past that a node that hangs counts as down at once,
// instead of gathering goroutines.
const maxHanging = 64

var (
	errSlow = errors.New("no answer in time")
	errBusy = errors.New("too many calls hang on this server")
)

// answer is what one node said.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// ask calls all nodes in parallel. It returns once all have answered; or, once enough says so, after those
// still out have had as long again; or at the time limit. Who has not answered by then has errSlow, and what it
// says later goes to late.
func ask[T any](ctx context.Context, q *quorum, call func(context.Context, *node) (T, error), enough func([]answer[T]) bool, late func(*node, T, error)) []answer[T] {
	began := time.Now()
	answers := make([]answer[T], len(q.nodes))
	heard := make(chan answer[T])
	over := make(chan struct{})
	defer close(over)
	for i, n := range q.nodes {
		answers[i] = answer[T]{node: i, err: errSlow}
		go func() {
			a := askNode(ctx, i, n, call)
			select {
			case heard <- a:
			case <-over:
				late(n, a.value, a.err)
			}
		}()
	}
	limit := time.NewTimer(q.timeout)
	defer limit.Stop()
	hurried := false
	for range q.nodes {
		select {
		case a := <-heard:
			answers[a.node] = a
		case <-limit.C:
			return answers
		case <-ctx.Done():
			return answers
		}
		if !hurried && enough(answers) {
			hurried = true
			limit.Reset(min(q.timeout, max(time.Since(began), time.Millisecond)))
		}
	}
	return answers
}

// askNode calls one node, unless too many calls hang there already.
func askNode[T any](ctx context.Context, i int, n *node, call func(context.Context, *node) (T, error)) answer[T] {
	a := answer[T]{node: i}
	select {
	case n.room <- struct{}{}:
		a.value, a.err = call(ctx, n)
		<-n.room
	default:
		a.err = errBusy
	}
	return a
}

// ignore is for answers that come too late to matter.
func ignore[T any](*node, T, error) {}

// agree returns how many nodes gave an answer that fits.
func agree[T any](answers []answer[T], fits func(answer[T]) bool) int {
	n := 0
	for _, a := range answers {
		if fits(a) {
			n++
		}
	}
	return n
}

// identify asks a node's server who it is, until it has said so or that it may not be asked. No lock is held while
// it answers: it may hang. A server that cannot be reached counts as down: it could be one that is reached twice.
func (n *node) identify(ctx context.Context) error {
	if n.known() != "" {
		return nil
	}
	info, err := n.scripts.client.Info(ctx, "server").Result()
	var refusal redis.Error
	id := ""
	switch _, rest, found := strings.Cut(info, "run_id:"); {
	case err == nil && found:
		id, _, _ = strings.Cut(rest, "\r\n")
	case err == nil, redis.HasErrorPrefix(err, "NOPERM"):
		id = unknownServer
	case !errors.As(err, &refusal):
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runID = id
	return nil
}

// known is what the node's server has said that it is; "" where it has not been asked.
func (n *node) known() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// unknownServer is a server that may not be asked who it is.
const unknownServer = "?"

// sameServer returns an error if two nodes turned out to be one server.
func (q *quorum) sameServer() error {
	var seen []string
	for i, n := range q.nodes {
		id := n.known()
		if id == "" || id == unknownServer {
			continue
		}
		if slices.Contains(seen, id) {
			return invalidf("client %d of the quorum leads to a server that another client leads to", i)
		}
		seen = append(seen, id)
	}
	return nil
}
