package demo

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// process is a worker's process, as the director holds it.
type process struct {
	child   *os.Process
	in, out *os.File      // its standard input and output
	stopped chan struct{} // told each time it has come to a stop
	done    chan struct{} // closed when it has ended
	how     string        // it ended; read after done
	ok      bool          // it ended well; read after done
}

func startProcess(command []string) (*process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}
	p := &process{in: in, out: out, stopped: make(chan struct{}, 1), done: make(chan struct{})}
	// Standard error is for panics alone; what a worker has to say is a report.
	err = p.launch(command, []*os.File{childIn, childOut, os.Stderr})
	_ = childIn.Close()
	_ = childOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return p, nil
}

// killPatience bounds the wait for a process after SIGKILL.
const killPatience = 10 * time.Second

// kill ends the process if it has not ended, stopped or not, and returns when it is gone. It is
// called once.
func (p *process) kill() error {
	pid := p.child.Pid
	err := p.child.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-p.done:
		err = p.child.Release()
	case <-time.After(killPatience):
		err = errors.Join(err, fmt.Errorf("process %d is still there", pid))
	}
	return errors.Join(err, p.in.Close(), p.out.Close())
}
