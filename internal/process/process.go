package process

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Spec says what to start.
type Spec struct {
	// Command is the path of a program and its arguments.
	Command []string
	// Env is added to this process's environment.
	Env []string
	// Stderr is the child's standard error, which is for panics only: a child reports through its output. Default: that
	// of this process.
	Stderr *os.File
	// Outlives lets the child live on for a while if its parent is killed, to clean up after it. The child has its own
	// session and must end when its standard input does.
	Outlives bool
}

// Self returns the command that starts this program again in a role, which is its one argument.
func Self(role string) ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{path, role}, nil
}

// Process is the parent's handle on a child. Its methods are safe for concurrent use.
type Process struct {
	in, out *os.File // its standard input and output
	child   *os.Process
	pid     int
	stopped chan struct{} // receives a value each time it has stopped
	done    chan struct{} // closed when it has ended
	how     string        // how it ended; read after done
	ok      bool          // whether the exit status was 0; read after done

	sending   sync.Mutex
	encoder   *json.Encoder
	receiving sync.Mutex
	decoder   *json.Decoder
}

// Supported returns nil if processes can be stopped and resumed here, and otherwise an error that says what is missing.
func Supported() error { return supported() }

// Start starts a child. The caller must Kill or End it, even if it has ended by itself.
func Start(s Spec) (*Process, error) {
	if len(s.Command) == 0 {
		return nil, errors.New("no command")
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}
	p := &Process{
		in: in, out: out, stopped: make(chan struct{}, 1), done: make(chan struct{}),
		encoder: json.NewEncoder(in), decoder: json.NewDecoder(out),
	}
	err = p.launch(s, []*os.File{childIn, childOut, cmp.Or(s.Stderr, os.Stderr)})
	_ = childIn.Close()
	_ = childOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return p, nil
}

// In is the child's standard input. Once the child has ended, writing fails with EPIPE.
func (p *Process) In() *os.File { return p.in }

// Out is the child's standard output.
func (p *Process) Out() *os.File { return p.out }

// PID is the child's process id.
func (p *Process) PID() int { return p.pid }

// Stopped receives a value when the child has stopped, by Stop or by StopSelf. Several stops before a receive give one
// value.
func (p *Process) Stopped() <-chan struct{} { return p.stopped }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// How says how the child ended, for example "with exit status 1". It is set once Done is closed.
func (p *Process) How() string { return p.how }

// OK reports whether the child ended with exit status 0. It is set once Done is closed.
func (p *Process) OK() bool { return p.ok }

// killPatience bounds the wait for a process after SIGKILL.
const killPatience = 10 * time.Second

// Kill ends the child, stopped or not, if it has not ended, and returns when it has exited. Call it once, unless End is
// called.
func (p *Process) Kill() error {
	err := p.child.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-p.done:
		_ = p.child.Release() // it has been waited for
	case <-time.After(killPatience):
		err = errors.Join(err, fmt.Errorf("process %d has not exited", p.pid))
	}
	return errors.Join(err, p.in.Close(), p.out.Close())
}

// End closes the child's standard input, which asks it to end, and returns when it has exited. After a while End kills
// it. The error says how it ended, unless its exit status was 0. Call End once, in place of Kill.
func (p *Process) End(patience time.Duration) error {
	_ = p.in.Close()
	_ = p.out.Close()
	kill := time.AfterFunc(patience, func() { _ = p.child.Kill() })
	defer kill.Stop()
	<-p.done
	_ = p.child.Release() // it has been waited for
	if !p.ok {
		return fmt.Errorf("it ended %s", p.how)
	}
	return nil
}
