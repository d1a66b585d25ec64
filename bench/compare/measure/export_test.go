package measure

import "net"

// TripCount is the count of round trips.
type TripCount = tripCount

// Count counts those of a connection.
func (c *TripCount) Count(conn net.Conn) net.Conn { return &countedConn{Conn: conn, count: c} }

// Trips returns the count.
func (c *TripCount) Trips() int64 { return c.trips.Load() }
