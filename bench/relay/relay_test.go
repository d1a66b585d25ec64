package relay_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/bench/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo starts a server that sends back whatever it receives.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, delay time.Duration) net.Conn {
	t.Helper()
	r, err := relay.Start(echo(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Each round trip takes twice the delay and hardly longer. The least of many counts, because the machine may be busy.
func TestARoundTripTakesTheDelayTwice(t *testing.T) {
	t.Parallel()
	const delay = 250 * time.Microsecond
	conn, word, least := dial(t, delay), []byte("word"), time.Minute
	for range 200 {
		began := time.Now()
		if _, err := conn.Write(word); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, word); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if took < 2*delay {
			t.Fatalf("a round trip took %v, less than twice %v", took, delay)
		}
		least = min(least, took)
	}
	if least > 2*delay+750*time.Microsecond {
		t.Errorf("the fastest round trip took %v, far above twice %v", least, delay)
	}
}

// A thousand pieces that are sent one after the other would take twenty seconds if each waited for the one before it.
func TestPiecesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const pieces, delay = 1000, 10 * time.Millisecond
	conn, piece := dial(t, delay), bytes.Repeat([]byte("0123456789"), 1000)
	began := time.Now()
	go func() {
		for range pieces {
			if _, err := conn.Write(piece); err != nil {
				return // the read fails as well
			}
		}
	}()
	got, err := io.ReadAll(io.LimitReader(conn, int64(pieces*len(piece))))
	if err != nil || !bytes.Equal(got, bytes.Repeat(piece, pieces)) {
		t.Fatalf("got %d bytes, not what was sent (%v)", len(got), err)
	}
	if took := time.Since(began); took > pieces*delay {
		t.Errorf("ten megabytes took %v, as if each piece waited", took)
	}
}

// Data that a server sent before it closed still arrives, followed by the end.
func TestTheEndComesAfterWhatWasSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	r, err := relay.Start(listener.Addr().String(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "last words" {
		t.Errorf("got %q (%v)", got, err)
	}
}

func TestARelayToNowhereClosesConnections(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	r, err := relay.Start(listener.Addr().String(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("read a byte from a server that does not exist")
	}
}
