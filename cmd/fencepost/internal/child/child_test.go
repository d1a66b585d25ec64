//go:build unix

package child_test

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/child"
)

// shell returns a program that sh runs.
func shell(text string) *child.Spec {
	return &child.Spec{Command: []string{"sh", "-c", text}, Stop: make(chan struct{}), Grace: time.Minute}
}

// told is a writer that signals its first write.
type told chan struct{}

func (c told) Write(text []byte) (int, error) {
	select {
	case <-c:
	default:
		close(c)
	}
	return len(text), nil
}

func TestTheStatusIsThatOfTheProgram(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		if got, err := child.Run(shell(text)); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for command, want := range map[string]int{"/nowhere/at/all": 127, "no-such-program-here": 127, "/": 126} {
		got, err := child.Run(&child.Spec{Command: []string{command}, Stop: make(chan struct{})})
		if got != want || err == nil {
			t.Errorf("%s: %d, %v", command, got, err)
		}
	}
}

// Every process of the group can read the secret again, and neither the environment nor the command line contains it.
func TestTheSecretIsInADescriptorAlone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := shell(`cat <&3; echo; cat /dev/fd/3; echo; env; cat /proc/$$/cmdline; ls -l /proc/self/fd/3`)
	s.Secret, s.Out, s.Env = []byte("hunter2"), &out, []string{"SEEN=yes"}
	if status, err := child.Run(s); status != 0 || err != nil {
		t.Fatal(status, err)
	}
	if lines := strings.Split(out.String(), "\n"); lines[0] != "hunter2" || !strings.Contains(out.String(), "SEEN=yes") ||
		strings.Count(out.String(), "hunter2") != 2 || !strings.Contains(out.String(), "(deleted)") {
		t.Errorf("it read %q", out.String())
	}
}

func TestASignalReachesTheWholeGroup(t *testing.T) {
	t.Parallel()
	ready, signals := make(told), make(chan os.Signal, 1)
	var out bytes.Buffer
	// The outer trap comes first: the inner program says that it is ready.
	s := shell(`trap 'wait; exit 9' TERM; ` +
		`sh -c 'trap "echo inner; exit 3" TERM; echo ready >&2; while :; do sleep 0.05; done' & wait`)
	s.Out, s.Err, s.Signals = &out, ready, signals
	go func() {
		<-ready
		signals <- syscall.SIGTERM
	}()
	if status, err := child.Run(s); status != 9 || err != nil || out.String() != "inner\n" {
		t.Errorf("status %d, %v, %q", status, err, out.String())
	}
}

// A program that ignores SIGTERM is killed after the grace time, and so are the processes that it left behind.
func TestStopEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"that does not listen":      `trap '' TERM; sleep 1000 & echo ready >&2; wait; sleep 1000`,
		"whose child goes on":       `(trap '' TERM; exec sleep 1000) & echo ready >&2; trap 'exit 5' TERM; wait`,
		"that ends when it is told": `sleep 1000 & echo ready >&2; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, stop := make(told), make(chan struct{})
			s := shell(text)
			s.Err, s.Stop, s.Grace = ready, stop, 100*time.Millisecond
			var group int
			s.Command[2] = "echo $$; " + s.Command[2]
			var out bytes.Buffer
			s.Out = &out
			go func() {
				<-ready
				close(stop)
			}()
			status, err := child.Run(s)
			if err != nil || status == 0 {
				t.Errorf("status %d, %v", status, err)
			}
			for _, c := range strings.TrimSpace(out.String()) {
				group = 10*group + int(c-'0')
			}
			deadline := time.Now().Add(5 * time.Second) // what was killed may not have been waited for yet
			for syscall.Kill(-group, 0) == nil && time.Now().Before(deadline) {
				<-time.After(10 * time.Millisecond)
			}
			if group < 2 || syscall.Kill(-group, 0) == nil {
				t.Errorf("something is left of group %d", group)
			}
		})
	}
}
