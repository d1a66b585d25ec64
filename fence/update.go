package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/token"
)

// DB is what [Update] writes through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Update writes one row with a bare token, in one statement that compares and stamps it:
//
//	UPDATE … SET …, last_fencing_token = $t WHERE key = $k AND last_fencing_token < $t
//
// It promises that the tokens accepted for a row rise strictly: one accepted write per token and
// row. It does not ask the fence, so until a new holder has touched the row, an overtaken one can
// still write there; [Guard] closes that gap, and so does stamping the row first ([ClaimRow]).
//
// Applied, it costs one round trip. When no row changed, a second statement asks why (the first
// one's snapshot is older than its wait for the row):
//   - ErrNotFound: no such row;
//   - *StaleError: the row carries a higher token;
//   - ErrTokenSpent: the row carries this very token;
//   - ErrRefused: the token is good enough, and twice the database changed nothing.
//
// Other errors: ErrInvalid before anything is sent, ErrUnavailable, ErrOutcomeUnknown. ctx bounds the
// call. It is safe for concurrent use as far as db is.
func Update(ctx context.Context, db DB, t Table, tok token.Token, key Key, set Set) error {
	if err := errors.Join(tok.Check(), t.checkWrite(key, set), freeDB(db)); err != nil {
		return err
	}
	if pool, ok := db.(*pgxpool.Pool); ok {
		// Waiting for a connection is not yet writing: what ends it leaves no doubt.
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("%w: update: %w", ErrUnavailable, err)
		}
		defer conn.Release()
		db = conn.Conn()
	}
	w := write{table: t, token: tok, key: key, stored: strictly, of: present}
	stmt := t.update(key, set, int64(tok), strictly)
	for range 2 {
		changed, err := send(ctx, db, "update", stmt)
		if err != nil || changed > 0 {
			return err
		}
		if err := w.explain(ctx, db); err != nil {
			return err
		}
	}
	return refused(t)
}

// send sends one statement through whatever db is, and returns how many rows it changed.
func send(ctx context.Context, db DB, verb string, stmt statement) (int64, error) {
	commits := commitsAlone(db)
	if conn, ok := db.(*pgx.Conn); ok && commits {
		return alone(ctx, conn, verb, stmt)
	}
	tag, err := db.Exec(ctx, stmt.sql, stmt.args...)
	return tag.RowsAffected(), interpret(ctx, verb, err, commits)
}

// commitsAlone reports whether a statement sent through db commits by itself.
func commitsAlone(db DB) bool {
	if over, ok := db.(overSQL); ok {
		return over.commitsAlone()
	}
	if conn, ok := db.(*pgx.Conn); ok {
		return conn.PgConn().TxStatus() == 'I'
	}
	_, inTx := db.(pgx.Tx)
	return !inTx
}

func refused(t Table) error {
	return fmt.Errorf("%w: a policy or a trigger of %s let no row change", ErrRefused, t)
}
