//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// The status is that of the signal even if nobody but the context has heard of it yet: two listeners of one signal are
// not told at the same time.
func TestTheStatusOfAnInterruptionComesFromTheContext(t *testing.T) {
	t.Parallel()
	ctx, stop := untilSignal(t.Context(), syscall.SIGUSR1) // which nothing else here listens to
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the signal did not end the context")
	}
	failed := fmt.Errorf("acquire: %w", context.Cause(ctx))
	if got := statusOf(interruptedBy(ctx, failed)); got != 128+int(syscall.SIGUSR1) ||
		!errors.Is(failed, context.Canceled) {
		t.Errorf("status %d, cause %v", got, context.Cause(ctx))
	}
	if err := interruptedBy(ctx, nil); err != nil {
		t.Errorf("what did not fail: %v", err)
	}
}

// The control: an error under a context that ended for another reason keeps its status.
func TestTheStatusOfAnInterruptionComesFromTheContextControl_OtherwiseItIsTheErrors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := statusOf(interruptedBy(ctx, fencepost.ErrHeld)); got != exitHeld {
		t.Errorf("status %d", got)
	}
	ctx, stop := untilSignal(t.Context(), syscall.SIGUSR2)
	stop()
	if ctx.Err() == nil || statusOf(interruptedBy(ctx, fencepost.ErrHeld)) != exitHeld {
		t.Error("a context that was stopped goes on, or was ended by a signal")
	}
}

// Once the key has been entered the work counts, whatever becomes of the lease.
func TestTheEndOfARun(t *testing.T) {
	t.Parallel()
	failed := &statusError{7, nil}
	for name, tt := range map[string]struct {
		err, released error
		entered       bool
		status        int
		says          string
	}{
		"all is well":                   {nil, nil, false, 0, ""},
		"lost at the end":               {nil, fencepost.ErrLost, false, 79, ""},
		"lost after the key was there":  {nil, fencepost.ErrLost, true, 0, ""},
		"lost, and the program failed":  {failed, fencepost.ErrLost, false, 7, ""},
		"Redis gone":                    {nil, fencepost.ErrUnavailable, false, 0, "ends with its TTL"},
		"Redis gone, the program faile": {failed, fencepost.ErrUnavailable, false, 7, "ends with its TTL"},
	} {
		var errOut bytes.Buffer
		u := &underLease{std: &streams{err: &errOut}, entered: tt.entered}
		if got := statusOf(u.end(tt.err, tt.released)); got != tt.status || !strings.Contains(errOut.String(), tt.says) ||
			tt.says == "" && errOut.Len() > 0 {
			t.Errorf("%s: status %d, %s", name, got, &errOut)
		}
	}
}

// A lease can end while the ledger is asked. The program is not started then, not even to be ended at once.
func TestARunDoesNotStartItsProgramUnderALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	std := &streams{in: strings.NewReader(""), out: &out, err: &errOut}
	s := &site{
		pool: testenv.PoolOn(t, testenv.Database(t)), clients: []redis.UniversalClient{testenv.Redis(t)},
		namespace: strings.ReplaceAll(testenv.Prefix(t), ":", "-"),
	}
	store, err := s.store(std, fencepost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := store.Acquire(t.Context(), "x", &fencepost.AcquireOptions{MaxHold: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	<-lease.Done()
	c := &runCommand{Resource: "x", Command: []string{"sh", "-c", "trap '' TERM; echo ran"}, Grace: time.Minute}
	u := &underLease{runCommand: c, site: s, store: store, std: std}
	if err := u.work(t.Context(), lease); statusOf(err) != exitLost || out.Len() > 0 ||
		!strings.Contains(err.Error(), "was not run") {
		t.Errorf("%v, and it printed %q", err, &out)
	}
	_ = lease.Release(t.Context()) // it is over
}
