package relay

import (
	"net"
	"sync"
	"time"
)

const (
	// parcels is how many pieces may be under way at the same time, in one direction of a connection.
	parcels = 64
	// parcelSize times parcels is passed on within one delay at most: a gigabyte per second at 0.25 ms.
	parcelSize = 4 << 10
)

// link is one client's connection and the matching connection to the server.
type link struct {
	client, server net.Conn
	once           sync.Once
}

// parcel is a piece under way.
type parcel struct {
	bytes [parcelSize]byte
	size  int
	due   time.Time
}

// close ends both connections.
func (l *link) close() {
	l.once.Do(func() {
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// pass passes on what comes from one side to the other, until either ends. What has arrived by then is still passed on.
func (l *link) pass(from, to net.Conn, delay time.Duration) {
	free, underWay := make(chan *parcel, parcels), make(chan *parcel, parcels)
	for range parcels {
		free <- new(parcel)
	}
	var reader sync.WaitGroup
	reader.Go(func() { read(from, free, underWay, delay) })
	if err := deliver(to, free, underWay); err != nil {
		l.close()
	}
	for p := range underWay { // the reader ends with the connection, and must not wait for a parcel
		free <- p
	}
	l.close()
	reader.Wait()
}

func read(from net.Conn, free <-chan *parcel, underWay chan<- *parcel, delay time.Duration) {
	defer close(underWay)
	for {
		p := <-free
		n, err := from.Read(p.bytes[:])
		p.size, p.due = n, time.Now().Add(delay)
		if n > 0 {
			underWay <- p
		}
		if err != nil {
			return
		}
	}
}

// deliver writes each parcel once it is due.
func deliver(to net.Conn, free chan<- *parcel, underWay <-chan *parcel) error {
	t, err := newTimer()
	if err != nil {
		return err
	}
	defer t.close()
	for p := range underWay {
		if err := t.until(p.due); err != nil {
			return err
		}
		if _, err := to.Write(p.bytes[:p.size]); err != nil {
			return err
		}
		free <- p
	}
	return nil
}
