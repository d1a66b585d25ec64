//go:build unix

package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// childEnv has this binary be a child: it answers each line, unless that has it stop itself, end or fail.
const childEnv = "FENCEPOST_PROCESS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(echoEnv) != "" {
		echo()
		return
	}
	if os.Getenv(childEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "stop":
			if err := process.StopSelf(); err != nil {
				panic(err)
			}
		case "end":
			return
		case "fail":
			os.Exit(3)
		}
		fmt.Println("done:", lines.Text())
	}
}

type child struct {
	*process.Process
	t     *testing.T
	lines *bufio.Reader
}

func start(t *testing.T) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Spec{Command: []string{self}, Env: []string{childEnv + "=1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if alive(p.PID()) {
			t.Errorf("process %d is still there", p.PID())
		}
	})
	return &child{p, t, bufio.NewReader(p.Out())}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func (c *child) tell(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.In(), line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) hear(want string) {
	c.t.Helper()
	if line, err := c.lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "done: "+want {
		c.t.Fatalf("got %q, %v, want %q done", line, err, want)
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing happened")
	}
}

func TestAChildTalks(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.tell("this")
	c.hear("this")
	c.tell("end")
	await(t, c.Done())
	if !c.OK() || c.How() != "with exit status 0" {
		t.Errorf("it ended %s, well: %v", c.How(), c.OK())
	}
}

// A child that is stopped does nothing until it may go on, and is ended all the same.
func TestAChildIsStoppedAndResumed(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the parent", "itself"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.tell("this")
			c.hear("this")
			if by == "itself" {
				c.tell("stop")
				await(t, c.Stopped())
			} else if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.tell("that")
			if err := c.Out().SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if line, err := c.lines.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a child that is stopped said %q, %v", line, err)
			}
			if err := errors.Join(c.Out().SetReadDeadline(time.Time{}), c.Resume()); err != nil {
				t.Fatal(err)
			}
			if by == "itself" {
				c.hear("stop")
			}
			c.hear("that")
		})
	}
}

func TestAStoppedChildIsKilled(t *testing.T) {
	t.Parallel()
	c := start(t)
	if err := c.Stop(t.Context()); err != nil { // the clean-up looks for it
		t.Fatal(err)
	}
}

func TestHowAChildEnded(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.tell("fail")
	await(t, c.Done())
	if c.OK() || c.How() != "with exit status 3" {
		t.Errorf("it ended %s, well: %v", c.How(), c.OK())
	}
	if err := c.Stop(context.Background()); err == nil {
		t.Error("a child that has ended was stopped")
	}
	if _, err := fmt.Fprintln(c.In(), "more"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got error %v, want %v", err, syscall.EPIPE)
	}
}

func TestWhatIsNoProgramIsNotStarted(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{nil, {"/nonexistent"}} {
		if _, err := process.Start(process.Spec{Command: command}); err == nil {
			t.Errorf("%q was started", command)
		}
	}
}
