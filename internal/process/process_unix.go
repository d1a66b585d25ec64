//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func supported() error { return nil }

// launch starts the process. Only launch waits for it: os/exec does not report that a process was stopped.
func (p *Process) launch(s Spec, files []*os.File) error {
	// A terminal's Ctrl-C is for the parent.
	attr := &syscall.SysProcAttr{Setpgid: !s.Outlives, Setsid: s.Outlives}
	if !s.Outlives {
		DieWithParent(attr, syscall.SIGKILL)
	}
	return OnThread(func() error {
		child, err := os.StartProcess(s.Command[0], s.Command, &os.ProcAttr{
			Env: append(os.Environ(), s.Env...), Files: files, Sys: attr,
		})
		if err == nil {
			p.child, p.pid = child, child.Pid
		}
		return err
	}, func() { p.watch(p.pid) })
}

// watch records each state change of the process until it has ended.
func (p *Process) watch(pid int) {
	defer close(p.done)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			p.how = fmt.Sprintf("in an unknown way (%v)", err)
			return
		case status.Stopped():
			select {
			case p.stopped <- struct{}{}:
			default: // an earlier stop has not been received yet
			}
		case status.Signaled():
			p.how = fmt.Sprintf("by signal: %v", status.Signal())
			return
		case status.Exited():
			p.ok = status.ExitStatus() == 0
			p.how = fmt.Sprintf("with exit status %d", status.ExitStatus())
			return
		}
	}
}

// Stop stops the process (SIGSTOP) and returns once the kernel reports that it has stopped.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-p.stopped:
		return nil
	case <-p.done:
		return fmt.Errorf("it ended %s", p.how)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resume continues the process (SIGCONT).
func (p *Process) Resume() error { return p.child.Signal(syscall.SIGCONT) }

// StopSelf stops this process (SIGSTOP) and returns once it has been resumed.
func StopSelf() error {
	// Kill may return before the process is stopped; the caller would then run on for a moment.
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-resumed
	return nil
}
