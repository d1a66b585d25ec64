//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func supported() error { return nil }

// launch starts the process. It alone waits for it, until its end: os/exec has no word for a process
// that was stopped.
func (p *Process) launch(command, env []string, files []*os.File) error {
	attr := &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the parent
	dieWithParent(attr)
	started := make(chan error, 1)
	go func() {
		// The kernel's "parent died" is really "the thread that started it ended", so this
		// goroutine keeps its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		child, err := os.StartProcess(command[0], command, &os.ProcAttr{
			Env: env, Files: files, Sys: attr,
		})
		if err == nil {
			p.child, p.pid = child, child.Pid
		}
		started <- err
		if err == nil {
			p.watch(p.pid)
		}
	}()
	return <-started
}

// watch takes in each change of the process until it has ended.
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
			default: // it was told before, and nobody has asked yet
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

// Stop stops the process (SIGSTOP) and returns when the kernel says that it does not run any more.
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

// Resume lets the process go on (SIGCONT).
func (p *Process) Resume() error { return p.child.Signal(syscall.SIGCONT) }

// StopSelf stops this process (SIGSTOP) and returns when somebody has let it go on.
func StopSelf() error {
	// Kill may return before the process is stopped, so that the caller would go on for a moment.
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-resumed
	return nil
}
