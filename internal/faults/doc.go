// Package faults breaks the network between a client and a real server, for tests and for the
// comparison that the command runs.
//
// A [Proxy] is a TCP relay on 127.0.0.1 that can cut connections, hang, delay, and
// close a connection at one chosen request: before the server sees it, or after the
// server has answered it. The last is the fault that matters most, an order carried
// out whose confirmation is lost, and it happens at a certain byte, not after a
// certain time.
//
// The relay is our own rather than toxiproxy. Used as a library, that has no toxic
// that looks at both directions, and one of our own would have to be registered
// process-wide and made from JSON, so it could hold no function; its "timeout"
// throws bytes away and closes the connection when taken out, where a hang must
// keep both; and stopping it does not wait for its goroutines.
package faults
