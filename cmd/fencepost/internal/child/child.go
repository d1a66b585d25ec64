// Package child runs a program in a process group of its own, hands it a secret, passes signals on to it, and ends the
// whole group if it may not go on.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// The exit statuses of a program that did not run, as shells have them.
const (
	CannotRun = 126
	NotFound  = 127
)

// Descriptor is the file descriptor from which the program reads the secret.
const Descriptor = 3

// Spec describes a program and what happens to it.
type Spec struct {
	Command []string
	Env     []string // in addition to our own
	Secret  []byte   // readable at Descriptor; on Linux any number of times, by opening /dev/fd/3
	In      io.Reader
	Out     io.Writer
	Err     io.Writer

	Stop    <-chan struct{}  // must not be nil; if it is closed, the group gets SIGTERM, and after Grace SIGKILL
	Signals <-chan os.Signal // are passed on to the group
	Grace   time.Duration
}

// Run runs a program and returns its exit status: 128 + n if signal n ended it. An error says that it was not run, with
// CannotRun or NotFound, or that its end could not be observed. If Stop ended the program, no process of its group is
// left when Run returns. Otherwise what the program left in the background goes on.
func Run(s *Spec) (status int, err error) {
	secret, err := secretFile(s.Secret)
	if err != nil {
		return CannotRun, err
	}
	defer func() { _ = secret.Close() }()
	cmd := exec.CommandContext(context.Background(), s.Command[0], s.Command[1:]...) //nolint:gosec // the user names it
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.ExtraFiles = []*os.File{secret}
	cmd.WaitDelay = time.Second // a process in the background may keep our pipes open
	inOwnGroup(cmd)
	ended := make(chan error, 1)
	// On Linux the child ends with the thread that started it, so that thread waits for it.
	if err := process.OnThread(cmd.Start, func() { ended <- cmd.Wait() }); err != nil {
		return statusOfStart(err), err
	}
	stopped := s.watch(cmd.Process.Pid, ended)
	return statusOfEnd(stopped)
}

// watch passes signals on until the program has ended, and returns what Wait returned.
func (s *Spec) watch(group int, ended <-chan error) error {
	stop := s.Stop
	var kill <-chan time.Time
	for {
		select {
		case err := <-ended:
			if stop == nil {
				endGroup(group, kill)
			}
			return err
		case sig := <-s.Signals:
			signalGroup(group, sig)
		case <-stop:
			stop = nil
			signalGroup(group, syscall.SIGTERM)
			kill = time.After(s.Grace)
		case <-kill:
			kill = nil
			signalGroup(group, os.Kill)
		}
	}
}

// endGroup waits until nothing is left of a group, and kills what is left once kill has fired. A nil kill has fired
// already, and then nothing is left that could go on.
func endGroup(group int, kill <-chan time.Time) {
	if kill == nil {
		return
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for signalGroup(group, nil) {
		select {
		case <-tick.C:
		case <-kill:
			signalGroup(group, os.Kill)
			return
		}
	}
}

// secretFile returns a file with the secret, open for reading, that has no name any more.
func secretFile(secret []byte) (*os.File, error) {
	file, err := os.CreateTemp("", "fencepost-") // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	_, err = file.Write(secret)
	read, openErr := os.Open(file.Name())
	if err := errors.Join(err, openErr, os.Remove(file.Name())); err != nil {
		if openErr == nil {
			_ = read.Close()
		}
		return nil, fmt.Errorf("hand the claim over: %w", err)
	}
	return read, nil
}

func statusOfStart(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return NotFound
	}
	return CannotRun
}

func statusOfEnd(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case !errors.As(err, &exit):
		return CannotRun, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
