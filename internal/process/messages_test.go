//go:build unix

package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// echoEnv has this binary be a child that answers each word with the word in capitals, and two of them for "twice".
// It says nothing for "hush", and ends with status 3, instead of a reply, for "fail".
const echoEnv = "FENCEPOST_PROCESS_ECHO"

func echo() {
	out := json.NewEncoder(os.Stdout)
	err := process.Orders(json.NewDecoder(os.Stdin), func(word string) error {
		switch word {
		case "hush":
			return nil
		case "fail":
			os.Exit(3)
		case "garbage":
			_, err := io.WriteString(os.Stdout, "no message\n")
			return err
		case "twice":
			_ = out.Encode("TWICE")
		}
		return out.Encode(strings.ToUpper(word))
	})
	if !errors.Is(err, process.ErrNoParent) {
		panic(err)
	}
}

func startEcho(t *testing.T) *process.Process {
	t.Helper()
	command, err := process.Self("echo")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Spec{Command: command, Env: []string{echoEnv + "=1"}, Outlives: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestACallHasAReply(t *testing.T) {
	t.Parallel()
	p := startEcho(t)
	for _, word := range []string{"this", "that"} {
		var reply string
		if err := p.Call(t.Context(), word, &reply); err != nil || reply != strings.ToUpper(word) {
			t.Errorf("to %q came %q, %v", word, reply, err)
		}
	}
	if err := p.End(20 * time.Second); err != nil {
		t.Errorf("a child whose input ended: %v", err)
	}
}

func TestTheContextEndsACall(t *testing.T) {
	t.Parallel()
	p := startEcho(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, enough)
	defer cancel()
	var reply string
	if err := p.Call(ctx, "hush", &reply); !errors.Is(err, enough) {
		t.Errorf("got %q, %v, want %v", reply, err, enough)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func TestACallOfAChildThatEndsOrTalksNonsenseIsAnError(t *testing.T) {
	t.Parallel()
	p := startEcho(t)
	var reply string
	if err := p.Call(t.Context(), "fail", &reply); !process.IsEnd(err) {
		t.Errorf("got %q, %v, want the end", reply, err)
	}
	if err := p.End(20 * time.Second); err == nil || !strings.Contains(err.Error(), "with exit status 3") {
		t.Errorf("it ended: %v", err)
	}
	p = startEcho(t)
	if err := p.Call(t.Context(), "garbage", &reply); err == nil || process.IsEnd(err) {
		t.Errorf("got %q, %v, want what is wrong with it", reply, err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func TestMessagesComeInTheirOrderUntilTheEnd(t *testing.T) {
	t.Parallel()
	p := startEcho(t)
	for _, word := range []string{"one", "twice", "end"} {
		if err := p.Send(word); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := process.Receive(p, func(word string) bool {
		got = append(got, word)
		return word != "END"
	})
	if want := []string{"ONE", "TWICE", "TWICE", "END"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := errors.Join(p.Send("fail"), process.Receive(p, func(string) bool { return true })); err != nil {
		t.Errorf("the end of the output: %v", err)
	}
	<-p.Done()
	if err := p.Send("more"); err != nil {
		t.Errorf("a message to a child that has ended: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// A child that does not end when it is asked to is killed.
func TestAChildThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	p := startEcho(t)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.End(
		10 * time.Millisecond,
	); err == nil || !strings.Contains(err.Error(), "by signal: killed") ||
		alive(p.PID()) {
		t.Errorf("it ended: %v", err)
	}
}

func TestWhatIsNoOrderIsAnError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want error // nil: another than ErrNoParent
	}{{"\"a\" \"b", process.ErrNoParent}, {"", process.ErrNoParent}, {"7", nil}, {"none", nil}} {
		err := process.Orders(json.NewDecoder(strings.NewReader(tt.in)), func(string) error { return nil })
		if err == nil || errors.Is(err, process.ErrNoParent) != (tt.want != nil) {
			t.Errorf("%q: got %v", tt.in, err)
		}
	}
}
