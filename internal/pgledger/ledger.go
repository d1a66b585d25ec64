package pgledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// Limits of the ledger.
const (
	// Window is the least time for which an entry of the ledger is kept, by the database's clock.
	Window = 24 * time.Hour
	// MaxKeyBytes is the longest key, in bytes of UTF-8.
	MaxKeyBytes = 512
	// MaxResultBytes is the longest result, in bytes of JSON.
	MaxResultBytes = 64 << 10
)

// Entry names one piece of work in the ledger.
type Entry struct {
	Namespace string   // keys of different namespaces are unrelated
	Key       string   // the caller's idempotency key
	Resource  string   // the full resource of the claim that the work is done under
	Request   [32]byte // SHA-256 of what is to be done
}

// Check returns nil for a valid entry, and otherwise an error that matches ErrInvalid.
func (e Entry) Check() error {
	switch {
	case e.Key == "" || len(e.Key) > MaxKeyBytes:
		return pgerr.Invalidf("an idempotency key has 1 to %d bytes, not %d", MaxKeyBytes, len(e.Key))
	case !encoding.IsText(e.Key):
		return pgerr.Invalidf("the idempotency key is not UTF-8 text without U+0000")
	case e.Namespace == "" || e.Resource == "":
		return pgerr.Invalidf("the ledger needs a namespace and a resource")
	}
	return nil
}

func (e Entry) args() []any { return []any{e.Namespace, e.Key, e.Resource, e.Request[:]} }

// Look reads the result of an entry's work, as JSON. It finds the result once the work has been committed. It does not
// check a fence, so even a stale claim gets the result of finished work. Errors: ErrInvalid; ErrKeyReused;
// ErrUnavailable, also if a standby answers, which may not have received the work yet. ctx bounds the call.
func Look(ctx context.Context, db pgsession.Querier, e Entry) (result []byte, found bool, err error) {
	if err := e.Check(); err != nil {
		return nil, false, err
	}
	const verb = "look into the ledger"
	var recorded *string
	err = pgsession.OnConn(ctx, db, verb, func(db pgsession.Querier) error {
		return pgerr.InterpretOwn(ctx, verb, db.QueryRow(ctx, lookSQL, e.args()...).Scan(&recorded))
	})
	if err != nil || recorded == nil {
		return nil, false, err
	}
	return []byte(*recorded), true, nil
}

const (
	lookSQL  = `SELECT fencepost.once_look($1::text, $2::text, $3::text, $4::bytea) WHERE ` + pgsql.OnPrimary
	beginSQL = `SELECT fencepost.once_begin($1::text, $2::text, $3::text, $4::bytea)`
)

// Begun is the result of [QueueBegin]. If the work has been done already, Done is true and Result is its result, as
// JSON.
type Begun struct {
	Result []byte
	Done   bool
}

// QueueBegin queues the ledger entry of the work, in the transaction that is to do the work and in the batch that
// begins with the guard. The statement waits for another transaction that does the same work. The entry must be valid
// (see [Entry.Check]). The result is set once the batch has been read. An error appears then too; pgclaim.GuardError
// interprets it.
func QueueBegin(b *pgx.Batch, e Entry) *Begun {
	var begun Begun
	b.Queue(beginSQL, e.args()...).QueryRow(func(row pgx.Row) error {
		var result *string
		err := row.Scan(&result)
		if result != nil {
			begun = Begun{Result: []byte(*result), Done: true}
		}
		return err
	})
	return &begun
}

// End records the result of the work that QueueBegin began in tx: JSON of up to MaxResultBytes, otherwise ErrInvalid.
// Other errors: ErrUnavailable. ctx bounds the call.
func End(ctx context.Context, tx pgx.Tx, e Entry, result []byte) error {
	if len(result) > MaxResultBytes {
		return pgerr.Invalidf("a result has up to %d bytes of JSON, not %d", MaxResultBytes, len(result))
	}
	if err := pgsession.CheckReady(tx.Conn()); err != nil {
		return err
	}
	const sql = `SELECT fencepost.once_end($1::text, $2::text, $3::text)`
	_, err := tx.Exec(ctx, sql, e.Namespace, e.Key, string(result))
	return pgerr.InterpretOwn(ctx, "end once", err)
}

// purgeBatch is how many entries one statement of Purge deletes.
const purgeBatch = 10_000

const purgeSQL = `SELECT fencepost.once_purge($1::text, $2::text::interval, $3::integer)`

// Purge deletes the entries of a namespace whose work ended longer ago than age, by the database's clock, and returns
// how many it deleted, also along with an error. An age below Window is ErrInvalid, because a retry would do the work
// again. It deletes in portions, each committed on its own; conn must not be in a transaction. Other errors:
// ErrUnavailable, ErrOutcomeUnknown. ctx bounds the call.
func Purge(ctx context.Context, conn *pgx.Conn, namespace string, age time.Duration) (purged int64, err error) {
	if age < Window {
		return 0, pgerr.Invalidf("entries younger than %v are not purged, so not all older than %v", Window, age)
	}
	if err := pgsession.CheckIdle(conn); err != nil {
		return 0, err
	}
	for {
		var n int64
		err := pgsession.Pipeline(ctx, conn, "purge the ledger", func(b *pgx.Batch) {
			b.Queue(purgeSQL, namespace, intervalText(age), purgeBatch).
				QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		})
		if err != nil {
			return purged, pgerr.NotGranted(err)
		}
		purged += n
		if n < purgeBatch {
			return purged, nil
		}
	}
}

// intervalText formats a duration above 0 as PostgreSQL's interval, in hours, minutes and seconds. PostgreSQL 13 and 14
// accept no number above 2^31 - 1 there, and a day has more microseconds than that.
func intervalText(d time.Duration) string {
	return fmt.Sprintf("%d:%02d:%02d.%06d", d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second,
		d%time.Second/time.Microsecond)
}
