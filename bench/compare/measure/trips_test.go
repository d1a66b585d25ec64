package measure_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/measure"
)

// A request in several writes is one trip, and so is a reply in several reads. A connection that only sends makes one.
func TestATripIsAQuestionAndItsAnswer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	answered := make(chan error, 1)
	go func() {
		two := make([]byte, 2)
		for range 3 {
			if _, err := io.ReadFull(far, two); err != nil {
				answered <- err
				return
			}
			if _, err := far.Write(two); err != nil {
				answered <- err
				return
			}
		}
		answered <- far.Close()
	}()
	var count measure.TripCount
	conn, one := count.Count(near), make([]byte, 1)
	for trip := range int64(3) {
		for _, call := range []func([]byte) (int, error){conn.Write, conn.Write, conn.Read, conn.Read} {
			if _, err := call(one); err != nil {
				t.Fatal(err)
			}
		}
		if got := count.Trips(); got != trip+1 {
			t.Errorf("%d trips are counted after %d", got, trip+1)
		}
	}
	if err := errors.Join(<-answered, conn.Close()); err != nil {
		t.Error(err)
	}
}
