package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// quorum runs the scripts on all nodes in parallel and counts the replies.
type quorum struct {
	nodes    []*node
	majority int
	timeout  time.Duration
	opts     Options
}

// node is one of the servers.
type node struct {
	index   int
	scripts *scripts
	breaker breaker
	who     identity
}

func newNode(index int, client redis.UniversalClient, opts Options, timeout time.Duration) *node {
	s := newScripts(client, opts)
	s.batcher.ofQuorum()
	return &node{index: index, scripts: s, breaker: breaker{patience: timeout}}
}

var (
	errSlow = errors.New("no answer in time")
	errBusy = errors.New("too many calls hang on this server")
)

// answer is the reply of one node.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// ask calls all nodes in parallel. It returns once all have answered, or at the time limit. Once enough is satisfied,
// it waits for the others only for as long again. A node that has not answered by then has errSlow. Its call goes on:
// call decides what to do with its reply, whether or not the caller still waits for it.
func ask[T any](
	ctx context.Context,
	q *quorum,
	call func(*node) (T, error),
	enough func([]answer[T]) bool,
) []answer[T] {
	began := time.Now()
	answers := make([]answer[T], len(q.nodes))
	arriving := make(chan answer[T], len(q.nodes)) // so that a node need not wait for a caller that has returned
	for i, n := range q.nodes {
		answers[i] = answer[T]{node: i, err: errSlow}
		go func() { arriving <- askNode(n, call) }()
	}
	limit := time.NewTimer(q.timeout)
	defer limit.Stop()
	hurried := false
	for range q.nodes {
		select {
		case a := <-arriving:
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

// askNode calls one node, unless calls pile up there because it does not answer.
func askNode[T any](n *node, call func(*node) (T, error)) answer[T] {
	a := answer[T]{node: n.index}
	passage, ok := n.breaker.enter(time.Now())
	if !ok {
		a.err = errBusy
		return a
	}
	a.value, a.err = call(n)
	n.breaker.leave(time.Now(), passage, spoke(a.err))
	if !spoke(a.err) && !unsent(a.err) {
		n.who.forget() // another server may answer there next time
	}
	return a
}

// spoke reports whether an outcome came from the server itself.
func spoke(err error) bool {
	return err == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrBadKey) || isAnswer(err)
}

// unsent reports whether an outcome says nothing about the server, because it was not asked, or the call was cut short.
func unsent(err error) bool {
	for _, reason := range []error{errNotSent, errStillAsked, errNeverAsked, context.Canceled} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// agree returns how many nodes gave an answer that satisfies fits.
func agree[T any](answers []answer[T], fits func(answer[T]) bool) int {
	n := 0
	for _, a := range answers {
		if fits(a) {
			n++
		}
	}
	return n
}
