//go:build !unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
)

func supported() error {
	return fmt.Errorf("stopping and resuming a process needs Unix signals: %w", errors.ErrUnsupported)
}

// launch starts the process and waits for its end.
func (p *Process) launch(s Spec, files []*os.File) error {
	attr := &os.ProcAttr{Env: append(os.Environ(), s.Env...), Files: files}
	child, err := os.StartProcess(s.Command[0], s.Command, attr)
	if err != nil {
		return err
	}
	p.child, p.pid = child, child.Pid
	go func() {
		defer close(p.done)
		state, err := child.Wait()
		if err != nil {
			p.how = fmt.Sprintf("in an unknown way (%v)", err)
			return
		}
		p.ok, p.how = state.Success(), fmt.Sprintf("with exit status %d", state.ExitCode())
	}()
	return nil
}

// Stop is not supported.
func (p *Process) Stop(context.Context) error { return supported() }

// Resume is not supported.
func (p *Process) Resume() error { return supported() }

// StopSelf is not supported.
func StopSelf() error { return supported() }
