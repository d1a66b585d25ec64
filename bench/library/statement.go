package library

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

const statementName = "the same statement, sent by hand"

// sentUpdate is an update of one row as the library sends it.
type sentUpdate struct {
	sql              string
	args             []any
	value, id, token int // the places of what differs from row to row among the arguments; -1 if it is not there
}

// What is recorded: a row that no worker updates, and a token that no lease has.
const (
	recordedValue = "recorded"
	recordedID    = int64(rowCount)
	recordedToken = int64(1) << 40
)

// exec sends it for another row, with pgx and nothing else. What the library's own code costs is above it, and what its
// statement costs is below it.
func (u *sentUpdate) exec(ctx context.Context, pool *pgxpool.Pool, at *walk) error {
	args := append(make([]any, 0, 8), u.args...)
	args[u.value], args[u.id] = strconv.FormatInt(at.pass, 10), at.id
	if u.token >= 0 {
		args[u.token] = at.pass
	}
	tag, err := pool.Exec(ctx, u.sql, args...)
	return oneRow(tag.RowsAffected(), err)
}

// recordUpdates returns the statements by which record, called for each worker, updates the row with recordedID to
// recordedValue.
func recordUpdates(
	ctx context.Context, s Servers, record func(worker int, pool *pgxpool.Pool) error,
) (updates [Workers]*sentUpdate, err error) {
	config, noted := s.Pool.Config().Copy(), &statements{}
	config.ConnConfig.Tracer = noted
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return updates, err
	}
	defer pool.Close()
	for worker := range updates {
		if err := record(worker, pool); err != nil {
			return updates, err
		}
		if updates[worker] = noted.update(); updates[worker] == nil {
			return updates, errors.New("no statement has the row's value and id")
		}
	}
	return updates, nil
}

// find finds the places, and reports whether this is the update.
func (u *sentUpdate) find() bool {
	for i, arg := range u.args {
		switch arg {
		case any(recordedValue):
			u.value = i
		case any(recordedID):
			u.id = i
		case any(recordedToken):
			u.token = i
		}
	}
	return u.value >= 0 && u.id >= 0
}

// statements is a tracer that notes what a pool sends.
type statements struct {
	mu   sync.Mutex
	sent []pgx.QueuedQuery
}

func (s *statements) add(sql string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, pgx.QueuedQuery{SQL: sql, Arguments: slices.Clone(args)})
}

// update returns the update among what was noted, and forgets all of it. nil: there was none.
func (s *statements) update() *sentUpdate {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.sent = nil }()
	for _, q := range s.sent {
		if u := (&sentUpdate{q.SQL, q.Arguments, -1, -1, -1}); u.find() {
			return u
		}
	}
	return nil
}

// TraceQueryStart notes a statement that is sent alone.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.add(q.SQL, q.Args)
	return ctx
}

// TraceQueryEnd does nothing.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart notes the statements of a batch.
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	for _, q := range b.Batch.QueuedQueries {
		s.add(q.SQL, q.Arguments)
	}
	return ctx
}

// TraceBatchQuery does nothing.
func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// sentCandidate sends by hand the updates that record makes.
func sentCandidate(
	ctx context.Context, s Servers, record func(worker int, pool *pgxpool.Pool) error,
) (measure.Candidate, error) {
	updates, err := recordUpdates(ctx, s, record)
	return measure.Candidate{Name: statementName, Worker: func(worker int) func(context.Context) error {
		at := newWalk(worker)
		return func(ctx context.Context) error {
			at.next()
			return updates[worker].exec(ctx, s.Pool, at)
		}
	}}, err
}
