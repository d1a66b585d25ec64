// Package board keeps an eye on a site, for people: it looks at leases and fences again and again, says what has
// changed between its looks, and adds up what workers export about themselves.
//
// Nobody helps it. What it says of leases and waiters, Redis said; fences and claims are PostgreSQL's word. Three
// things only workers know, because they leave no trace in either server: that a lease was lost and not released, that
// a write was refused, and how long a hand-off took. For these the board reads the workers' own metrics
// (otelfencepost), if it is told where they are.
//
// It does not listen to the messages that tell waiters of a lease. Redis counts the listeners, and a release that finds
// one believes that the head of the queue is alive: a board that listened would make hand-offs slower.
package board
