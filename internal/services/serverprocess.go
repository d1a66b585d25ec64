package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// serverProcess is a server that runs as our child.
type serverProcess struct {
	name string
	pid  int
	log  string        // file with its output
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// processSpec says what to run. Everything is in dir, which user may write, except what args name.
type processSpec struct {
	name string // for messages and the log's file name
	path string
	args []string
	dir  string
	user *account
}

// command builds the command with its own environment: PGPORT and the like in ours are not meant for this server.
func (s processSpec) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.path, s.args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "LC_ALL=C", "TZ=UTC"}
	ownGroup(cmd, s.user)
	// For commands that end by themselves (initdb). Their children must not outlive them, because they would write into
	// a folder that is being removed.
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func startProcess(s processSpec) (*serverProcess, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	// Not bound to a context: stop ends a server, and knows the right signal.
	cmd := s.command(context.Background())
	cmd.Stdout, cmd.Stderr = log, log
	p := &serverProcess{name: s.name, log: log.Name(), done: make(chan struct{})}
	err = process.OnThread(func() error {
		err := cmd.Start()
		_ = log.Close()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		return err
	}, func() {
		p.err = cmd.Wait()
		close(p.done)
	})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	return p, nil
}

// end sends the first signal to the process and its group, then SIGKILL when ctx ends, and waits until the process has
// exited.
func (p *serverProcess) end(ctx context.Context, first syscall.Signal) error {
	if p.ended() {
		return nil
	}
	if err := signalGroup(p.pid, first); err != nil && !p.ended() {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	_ = signalGroup(p.pid, syscall.SIGKILL)
	<-p.done
	return nil
}

func (p *serverProcess) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure explains why a server is not ready, with the end of its log.
func (p *serverProcess) failure(err error) error {
	if p.ended() {
		err = fmt.Errorf("%s ended while starting: %w", p.name, errors.Join(p.err, err))
	} else {
		err = fmt.Errorf("%s does not answer: %w", p.name, err)
	}
	f, openErr := os.Open(p.log)
	if openErr != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if tail := tailOf(f); tail != "" {
		return fmt.Errorf("%w; its log ends:\n%s", err, tail)
	}
	return err
}
