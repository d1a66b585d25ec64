package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// identity is the server that a node's client leads to, since two clients may lead to one server. One call asks for
// all. The server is asked again after it could not be reached, because another may answer at the same address from
// then on.
type identity struct {
	mu     sync.Mutex
	runID  string        // "" while unknown, "?" if asking is not allowed
	asking *introduction // in flight; nil if none
}

// introduction is a request that other callers wait for as well.
type introduction struct {
	began time.Time
	done  chan struct{} // closed once err is there
	err   error
}

// unknownServer stands for a server that does not let us ask who it is.
const unknownServer = "?"

// identify asks the node's server who it is, unless it has answered or refused already. No lock is held during the
// call, which may hang; the first caller that comes after patience then asks again. A server that cannot be reached
// counts as down, because it could be a server that is reached twice.
func (n *node) identify(ctx context.Context, patience time.Duration) error {
	asking, mine := n.who.introduce(patience)
	switch {
	case asking == nil:
		return nil
	case mine:
		// Others wait for the reply as well, so it does not end with this call's nonce.
		id, err := askForRunID(context.WithoutCancel(ctx), n.scripts.client)
		n.who.introduced(asking, id, err)
		return err
	}
	select {
	case <-asking.done:
		return asking.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// introduce returns nil if the server is known. mine reports that the caller has to ask.
func (w *identity) introduce(patience time.Duration) (asking *introduction, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.runID != "":
		return nil, false
	case w.asking != nil && time.Since(w.asking.began) < patience:
		return w.asking, false
	}
	w.asking = &introduction{began: time.Now(), done: make(chan struct{})}
	return w.asking, true
}

func (w *identity) introduced(asking *introduction, id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "" {
		w.runID = id
	}
	asking.err = err
	close(asking.done)
	if w.asking == asking {
		w.asking = nil
	}
}

// forget makes the next call ask the server again.
func (w *identity) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runID = ""
}

// known is the server's run id; "" if it has not been asked.
func (w *identity) known() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runID
}

// askForRunID returns "" and no error if the server answers but cannot tell yet; it is then asked again.
func askForRunID(ctx context.Context, client redis.UniversalClient) (string, error) {
	info, err := client.Info(ctx, "server").Result()
	var refusal redis.Error
	switch _, rest, found := strings.Cut(info, "run_id:"); {
	case err == nil && found:
		id, _, _ := strings.Cut(rest, "\r\n")
		return id, nil
	case err == nil:
		return unknownServer, nil
	case !errors.As(err, &refusal):
		return "", err
	case passing(err):
		return "", nil
	}
	return unknownServer, nil // NOPERM, or a command that was renamed
}

// passing reports whether a refusal is temporary.
func passing(refusal error) bool {
	for _, prefix := range []string{
		"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
		"ERR max number of clients",
	} {
		if redis.HasErrorPrefix(refusal, prefix) {
			return true
		}
	}
	return false
}

// sameServer returns an error if two nodes turned out to be one server.
func (q *quorum) sameServer() error {
	seen := make(map[string]bool, len(q.nodes))
	for i, n := range q.nodes {
		id := n.who.known()
		if id == "" || id == unknownServer {
			continue
		}
		if seen[id] {
			return invalidf("client %d of the quorum leads to a server that another client leads to", i)
		}
		seen[id] = true
	}
	return nil
}
