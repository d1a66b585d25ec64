// Package faults breaks the network between a client and a real server, for tests and for the comparison that the
// command runs.
//
// A [Proxy] is a TCP relay on 127.0.0.1 that can cut connections, hang, add latency, and hold back one chosen reply. It
// can also close a connection at one chosen request, before the server sees it or after the server has answered it. The
// last is the fault that matters most: the server carries out an order and its confirmation is lost. It happens at a
// certain byte, not after a certain time.
//
// The relay is our own and not toxiproxy. Used as a library, toxiproxy has no toxic that sees both directions. A custom
// toxic would have to be registered process-wide and created from JSON, so it could not hold a function. Its "timeout"
// toxic discards bytes and closes the connection when removed, but a hang must keep both. Stopping it does not wait for
// its goroutines.
package faults
