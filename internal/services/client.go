package services

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// hostEnv marks a process as a host.
const hostEnv = "FENCEPOST_SERVICES_HOST"

// hostProcess is the user process's hold on a host. Calls take turns.
type hostProcess struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	in     *os.File // the host's standard input: open means "go on"
	out    *os.File
	reader *bufio.Reader
	log    *os.File // the host's standard error, in a file that has no name
	closed bool
}

// startHost starts a host and sends it first. On error no host is left.
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
		// A host in which main went on: it would start hosts without end.
		return nil, errors.New("RunHostIfAsked was not the first call of this program")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := anonymousFile()
	if err != nil {
		return nil, err
	}
	hostIn, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	out, hostOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close(), in.Close(), hostIn.Close())
	}
	cmd := exec.Command(self, "services-host") // the word is for people who look at ps
	cmd.Env = append(os.Environ(), hostEnv+"=1",
		// A binary built with -race sleeps for a second at its end otherwise.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	// Never our own output: go test waits until every holder of it is gone.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = hostIn, hostOut, log
	ownSession(cmd)
	err = cmd.Start()
	_ = hostIn.Close()
	_ = hostOut.Close()
	if err != nil {
		return nil, errors.Join(err, log.Close(), in.Close(), out.Close())
	}
	return &hostProcess{cmd: cmd, in: in, out: out, reader: bufio.NewReader(out), log: log}, nil
}

// anonymousFile gives the host's log a place that needs no cleaning up.
func anonymousFile() (*os.File, error) {
	f, err := os.CreateTemp("", "fencepost-host-*.log")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// call sends one request and waits for its answer. When ctx ends first, the
// conversation is out of step and the host is of no further use but to be closed.
func (h *hostProcess) call(ctx context.Context, r request) (answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return answer{}, errors.New("the server was closed")
	}
	line, err := json.Marshal(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := h.in.Write(append(line, '\n')); err != nil {
		return answer{}, h.diedError(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = h.out.SetReadDeadline(time.Now()) })
	defer stop()
	line, err = h.reader.ReadBytes('\n')
	if ctx.Err() != nil && err != nil {
		return answer{}, context.Cause(ctx)
	}
	if err != nil {
		return answer{}, h.diedError(err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, h.diedError(errors.New("it did not speak as one; RunHostIfAsked must be the first call of the program"))
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

// close ends the host and waits until it has cleaned up and gone.
func (h *hostProcess) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	// End of input is the request to stop, the same one that our death would be.
	_ = h.in.Close()
	_ = h.out.Close()
	kill := time.AfterFunc(stopPatience, func() { _ = h.cmd.Process.Kill() })
	err := h.cmd.Wait()
	kill.Stop()
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
