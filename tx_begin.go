package fencepost

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// enter begins a transaction that is guarded by the leases. It begins again if a guard failed only because another
// goroutine was lifting one of the leases.
func (r *txRun) enter(ctx context.Context, conn *pgx.Conn, t *guardedTx) error {
	for {
		t.claims = t.first[:0]
		for _, l := range r.leases {
			t.claims = append(t.claims, l.Claim())
		}
		err := r.begin(ctx, conn, t)
		if !errors.Is(err, ErrStale) {
			return err
		}
		lifted := false
		for i, l := range r.leases {
			lifted = lifted || r.store.awaitLift(ctx, l, t.claims[i])
		}
		if !lifted {
			return err
		}
	}
}

// begin opens the transaction, bounds how long it may be idle, marks it and enters its claims, all in one round trip.
func (r *txRun) begin(ctx context.Context, conn *pgx.Conn, t *guardedTx) error {
	return r.store.beginMarked(ctx, conn, t, func(mark *pgcommit.Mark) (pgx.Tx, error) {
		if r.plain() && len(t.claims) == 1 {
			tx, err := beginDirect(ctx, conn, "", func() (pgx.Tx, error) {
				return pgclaim.BeginEntered(ctx, conn, t.claims[0], r.opts.MaxIdle, &mark.XID, &mark.Incarnation)
			})
			if tx != nil || err != nil {
				return tx, err
			}
		}
		var b pgx.Batch
		// The server decides the access mode: READ WRITE would override an operator's default_transaction_read_only.
		// READ ONLY comes last, because the guard locks rows.
		b.BeginTx(pgx.TxOptions{IsoLevel: r.opts.Isolation})
		r.queueOpening(&b, t.claims, mark)
		if r.opts.first != nil {
			r.opts.first(&b)
		}
		if r.opts.ReadOnly {
			b.Queue(`SET TRANSACTION READ ONLY`)
		}
		return sendBegin(ctx, conn, &b, "")
	})
}

// plain reports whether the transaction begins with its claims alone.
func (r *txRun) plain() bool {
	return r.opts.Isolation == pgx.ReadCommitted && r.opts.first == nil && !r.opts.ReadOnly
}

// queueOpening queues what opens a transaction under claims: one statement for one claim, which is the usual case.
func (r *txRun) queueOpening(b *pgx.Batch, claims []Claim, mark *pgcommit.Mark) {
	if len(claims) == 1 {
		pgclaim.QueueEnterMarked(b, claims[0], r.opts.MaxIdle, &mark.XID, &mark.Incarnation)
		return
	}
	boundIdle(b, r.opts.MaxIdle)
	pgcommit.QueueMark(b, mark)
	if len(claims) > 0 {
		pgclaim.QueueEnterAll(b, claims)
	}
}

// beginMarked begins a transaction. If the server has no incarnation, it makes one and begins again. A transaction
// without a mark is better than none, because the mark matters only if a reply is lost.
func (s *Store) beginMarked(
	ctx context.Context, conn *pgx.Conn, t *guardedTx, begin func(*pgcommit.Mark) (pgx.Tx, error),
) error {
	tx, err := begin(&t.mark)
	if err == nil && t.mark.Incarnation == "" {
		rollback(ctx, tx)
		if err := pgcommit.BeginIncarnation(ctx, conn); err != nil {
			s.opts.Logger.Warn("the server's incarnation cannot be told from the next", "error", err)
		}
		tx, err = begin(&t.mark)
	}
	if err != nil {
		return err
	}
	t.Tx = tx
	return nil
}

// boundIdle bounds how long the transaction may be idle. A holder that is stopped while it reads a result is not idle;
// the second setting ends its transaction.
func boundIdle(b *pgx.Batch, maxIdle time.Duration) {
	b.Queue(`SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('tcp_user_timeout', $1, true)`,
		strconv.FormatInt(maxIdle.Milliseconds(), 10))
}

// sendBegin sends the batch that opens a guarded transaction. claims is the resource that the batch claims, for errors;
// empty if it claims none.
func sendBegin(ctx context.Context, conn *pgx.Conn, b *pgx.Batch, claims string) (pgx.Tx, error) {
	if problem := encoding.Problem(conn.PgConn()); problem != "" {
		return nil, invalidf("%s", problem)
	}
	results := conn.SendBatch(ctx, b)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		rollback(ctx, tx)
		return nil, beginError(ctx, claims, err)
	}
	return tx, nil
}

// beginDirect is sendBegin for a transaction that begin opens without a batch. It returns no transaction and no error
// if a batch has to be sent.
func beginDirect(
	ctx context.Context, conn *pgx.Conn, claims string, begin func() (pgx.Tx, error),
) (pgx.Tx, error) {
	if problem := encoding.Problem(conn.PgConn()); problem != "" {
		return nil, invalidf("%s", problem)
	}
	tx, err := begin()
	if err != nil {
		if tx != nil {
			rollback(ctx, tx)
		}
		return nil, beginError(ctx, claims, err)
	}
	return tx, nil
}

func beginError(ctx context.Context, claims string, err error) error {
	verb := "guard"
	if claims != "" {
		verb = "claim " + strconv.Quote(claims)
	}
	return pgerr.InterpretOwn(ctx, verb, err)
}
