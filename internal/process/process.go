package process

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Process is a child, as its parent holds it. Its methods are safe for concurrent use.
type Process struct {
	in, out *os.File // its standard input and output
	child   *os.Process
	pid     int
	stopped chan struct{} // told each time it has come to a stop
	done    chan struct{} // closed when it has ended
	how     string        // it ended; read after done
	ok      bool          // it ended well; read after done
}

// Supported returns nil where processes can be stopped and resumed, and otherwise an error that says what is missing.
func Supported() error { return supported() }

// Start starts a command, with the path of a program, in this process's environment and what is added to it. It must be
// killed, also when it has ended.
func Start(command []string, env ...string) (*Process, error) {
	if len(command) == 0 {
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
	p := &Process{in: in, out: out, stopped: make(chan struct{}, 1), done: make(chan struct{})}
	// Standard error is for panics alone; what a child has to say goes to its output.
	err = p.launch(command, append(os.Environ(), env...), []*os.File{childIn, childOut, os.Stderr})
	_ = childIn.Close()
	_ = childOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return p, nil
}

// In is what the child reads. Once the child has ended, writing fails with EPIPE.
func (p *Process) In() *os.File { return p.in }

// Out is what the child writes.
func (p *Process) Out() *os.File { return p.out }

// PID is the child's process id.
func (p *Process) PID() int { return p.pid }

// Stopped is told that the child has come to a stop, by Stop or by StopSelf. Where it did so more than once before anybody
// asked, it is told once.
func (p *Process) Stopped() <-chan struct{} { return p.stopped }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// How says in which way the child ended: "with exit status 1", for instance. It is there once Done is closed.
func (p *Process) How() string { return p.how }

// OK tells whether the child ended with exit status 0. It is there once Done is closed.
func (p *Process) OK() bool { return p.ok }

// killPatience bounds the wait for a process after SIGKILL.
const killPatience = 10 * time.Second

// Kill ends the child if it has not ended, stopped or not, and returns when it is gone. It is
// called once.
func (p *Process) Kill() error {
	err := p.child.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-p.done:
		err = p.child.Release()
	case <-time.After(killPatience):
		err = errors.Join(err, fmt.Errorf("process %d is still there", p.pid))
	}
	return errors.Join(err, p.in.Close(), p.out.Close())
}
