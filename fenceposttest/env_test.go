package fenceposttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fenceposttest"
)

func TestMain(m *testing.M) { fenceposttest.Main(m) }

// modes are a store with Redis, and one without.
func modes() map[string]*fenceposttest.Options {
	return map[string]*fenceposttest.Options{"redis": nil, "advisory": {Advisory: true}}
}

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO written VALUES (1)`)
	return err
}

// written makes the table that write writes to, and returns how many rows it has.
func written(t *testing.T, e *fenceposttest.Env) (rows func() int) {
	t.Helper()
	if _, err := e.Pool.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS written (n int)`); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		if err := e.Pool.QueryRow(t.Context(), `SELECT count(*) FROM written`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func acquire(t *testing.T, e *fenceposttest.Env, resource string) *fencepost.Lease {
	t.Helper()
	l, err := e.Store.Acquire(t.Context(), resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An overtaken holder is refused, and does not know before that it was overtaken. The control: before, it wrote.
func TestAnOvertakenHolderIsRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			rows, l := written(t, e), acquire(t, e, "r {1}")
			if err := e.Store.Tx(t.Context(), write, l); err != nil {
				t.Fatal(err)
			}
			if next := e.TakeOver("r {1}"); next <= l.Token() {
				t.Errorf("token %d after %d", next, l.Token())
			}
			if err := l.Err(); err != nil {
				t.Errorf("the holder was told: %v", err)
			}
			if err := e.Store.Tx(t.Context(), write, l); !errors.Is(err, fencepost.ErrStale) || rows() != 1 {
				t.Errorf("the overtaken holder wrote: %v, %d rows", err, rows())
			}
			_ = l.Release(t.Context())
			if err := e.Store.Do(t.Context(), "r {1}", write); err != nil || rows() != 2 {
				t.Errorf("the resource is free again: %v, %d rows", err, rows())
			}
		})
	}
}

// A worker may be overtaken before it ever worked: the resource is free, and its fence has moved.
func TestAResourceThatNobodyHoldsCanBeTakenOver(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			first := e.TakeOver("r")
			if second := e.TakeOver("r"); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			if l := acquire(t, e, "r"); l.Token() <= first+1 {
				t.Errorf("token %d", l.Token())
			}
		})
	}
}

func TestALostLeaseEndsItsContext(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			l := acquire(t, e, "r")
			e.Lose(l)
			if l.Context().Err() == nil || !errors.Is(l.Err(), fencepost.ErrLost) {
				t.Errorf("%v, and its context %v", l.Err(), l.Context().Err())
			}
			if err := e.Store.Do(t.Context(), "r", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// The answer is lost, and the store finds out by itself that the transaction was committed, once.
func TestALostReplyToACommit(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			rows := written(t, e)
			dropped := e.DropNextCommitReply()
			if err := e.Store.Do(t.Context(), "r", write); err != nil || rows() != 1 {
				t.Errorf("%v, %d rows", err, rows())
			}
			select {
			case <-dropped:
			default:
				t.Error("the reply arrived")
			}
		})
	}
}

// The control for the above: a COMMIT that never arrives leaves nothing, and the store says so.
func TestALostCommit(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			rows, l := written(t, e), acquire(t, e, "r")
			dropped := e.DropNextCommit()
			err := e.Store.Tx(t.Context(), write, l)
			if !errors.Is(err, fencepost.ErrUnavailable) || rows() != 0 {
				t.Errorf("%v, %d rows", err, rows())
			}
			<-dropped
		})
	}
}

// A paused holder keeps its lease by its own clock while another worker works, and is refused when it resumes.
func TestAPausedHolder(t *testing.T) {
	t.Parallel()
	e := fenceposttest.New(t, nil)
	rows, l := written(t, e), acquire(t, e, "r")
	resume := e.Pause()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Renew(short, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a renewal got through: %v", err)
	}
	e.TakeOver("r")
	if err := e.Store.Tx(t.Context(), write, l); !errors.Is(err, fencepost.ErrStale) || rows() != 0 {
		t.Errorf("%v, %d rows", err, rows())
	}
	resume()
	if err := l.Renew(t.Context(), time.Minute); !errors.Is(err, fencepost.ErrLost) {
		t.Errorf("the holder resumes: %v", err)
	}
}

func TestAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fenceposttest.New(t, opts)
			l := acquire(t, e, "r")
			e.StepClock(-time.Hour)
			if l.Remaining() <= 0 || l.Err() != nil {
				t.Errorf("a step back took %v of the lease: %v", l.Remaining(), l.Err())
			}
			e.StepClock(2 * time.Hour)
			if err := e.Store.Tx(t.Context(), write, l); !errors.Is(err, fencepost.ErrLost) {
				t.Errorf("an hour later: %v", err)
			}
		})
	}
}

// The counters are gone, and tokens rise all the same. Keys of others stay.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	e, other := fenceposttest.New(t, nil), fenceposttest.New(t, nil)
	before, theirs := acquire(t, e, "r"), acquire(t, other, "r")
	e.RedisForgets()
	if after := acquire(t, e, "r"); after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	if err := theirs.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("another test's lease: %v", err)
	}
}

// A service may make its own store from the addresses.
func TestAStoreOfTheServicesOwn(t *testing.T) {
	t.Parallel()
	e := fenceposttest.New(t, &fenceposttest.Options{Store: fencepost.Options{Namespace: "shop", TTL: time.Minute}})
	own, err := fencepost.New(e.Pool, e.Redis, &fencepost.Options{Namespace: e.Namespace, WallClock: e.Now})
	if err != nil {
		t.Fatal(err)
	}
	l, err := own.Acquire(t.Context(), "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	e.TakeOver("r")
	if err := own.Tx(t.Context(), write, l); !errors.Is(err, fencepost.ErrStale) {
		t.Errorf("%v", err)
	}
}
