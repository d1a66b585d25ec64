package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// hostEnv marks a process as a host.
const hostEnv = "FENCEPOST_SERVICES_HOST"

// hostProcess is the user process's handle on a host. Calls take turns. The host runs until its standard input ends.
type hostProcess struct {
	mu     sync.Mutex
	child  *process.Process
	log    *os.File // the host's standard error, in an unlinked file
	closed bool
}

// startHost starts a host and sends it the first request. On error no host is left.
func startHost(ctx context.Context, first request) (*hostProcess, answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, answer{}, err
	}
	h, err := spawnHost()
	if err != nil {
		return nil, answer{}, fmt.Errorf("starting the host process: %w", err)
	}
	a, err := h.call(ctx, first)
	if err != nil {
		return nil, answer{}, errors.Join(err, h.close())
	}
	return h, a, nil
}

func spawnHost() (*hostProcess, error) {
	if os.Getenv(hostEnv) != "" {
		// In such a host main would continue and start hosts without end.
		return nil, errors.New("RunHostIfAsked was not the first call of this program")
	}
	command, err := process.Self("services-host") // the word is for people who look at ps
	if err != nil {
		return nil, err
	}
	log, err := anonymousFile()
	if err != nil {
		return nil, err
	}
	child, err := process.Start(process.Spec{
		Command: command,
		// Otherwise a binary built with -race sleeps for a second before it exits.
		Env: []string{hostEnv + "=1", "GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0"},
		// Never our own output: go test waits until every process that holds it has ended.
		Stderr: log, Outlives: true,
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &hostProcess{child: child, log: log}, nil
}

// anonymousFile returns a file for the host's log that needs no cleaning up.
func anonymousFile() (*os.File, error) {
	f, err := os.CreateTemp("", "fencepost-host-*.log")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// call sends one request and waits for its reply. If ctx ends first, requests and replies are out of step, and the host
// can only be closed.
func (h *hostProcess) call(ctx context.Context, r request) (answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return answer{}, errors.New("the server was closed")
	}
	var a answer
	switch err := h.child.Call(ctx, r, &a); {
	case err == nil:
	case ctx.Err() != nil:
		return answer{}, err
	case process.IsEnd(err):
		return answer{}, h.diedError(err)
	default:
		return answer{}, h.diedError(
			errors.New("it did not speak as one; RunHostIfAsked must be the first call of the program"),
		)
	}
	if a.Error != "" {
		return answer{}, errors.New(a.Error)
	}
	return a, nil
}

func (h *hostProcess) diedError(err error) error {
	text := fmt.Errorf("talking to the host process: %w", err)
	if tail := tailOf(h.log); tail != "" {
		return fmt.Errorf("%w; its last words:\n%s", text, tail)
	}
	return text
}

// close ends the host and waits until it has cleaned up and exited.
func (h *hostProcess) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	// End of input asks the host to stop, just as our death would.
	err := h.child.End(stopPatience)
	if err != nil {
		err = fmt.Errorf("stopping servers: %w", h.diedError(err))
	}
	return errors.Join(err, h.log.Close())
}

// tailBytes is how much of a log an error quotes.
const tailBytes = 2000

// tailOf returns the end of a file.
func tailOf(f *os.File) string {
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(0, st.Size()-tailBytes-1)
	text, err := io.ReadAll(io.NewSectionReader(f, from, st.Size()-from))
	if err != nil {
		return ""
	}
	return trimTail(text)
}

// trimTail returns the end of text, from a line's beginning.
func trimTail(text []byte) string {
	if len(text) > tailBytes {
		text = text[len(text)-tailBytes:]
		if _, rest, ok := bytes.Cut(text, []byte("\n")); ok {
			text = rest
		}
	}
	return string(bytes.TrimSpace(text))
}
