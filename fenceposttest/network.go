package fenceposttest

import "github.com/fencepost-pg/fencepost/internal/faults"

// DropNextCommitReply lets the next COMMIT of the store's pool through and loses PostgreSQL's answer: the transaction
// is committed, and the worker's connection is closed before it learns of that. The channel is closed when it has
// happened. Any goroutine may call it.
func (e *Env) DropNextCommitReply() <-chan struct{} {
	return e.postgres.DropNextReplyThat(faults.Committed())
}

// DropNextCommit loses the next COMMIT of the store's pool before PostgreSQL receives it: the transaction is rolled
// back. Otherwise it is like DropNextCommitReply.
func (e *Env) DropNextCommit() <-chan struct{} {
	return e.postgres.DropNextRequest(faults.Commit())
}

// Pause cuts the store off from Redis as if its process were stopped: nothing that it sends arrives, and nothing is
// answered, until resume is called. The test's goroutines continue, and the store believes in its leases until they are
// over by its own clock. [Env.TakeOver] meanwhile gives them to another worker. resume may be called more than once, by
// any goroutine, and is called when the test ends. It is for stores with Redis.
func (e *Env) Pause() (resume func()) {
	e.tb.Helper()
	e.needRedis("Pause")
	e.network.Hang()
	e.tb.Cleanup(e.network.Resume)
	return e.network.Resume
}
