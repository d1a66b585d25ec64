package fence

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What the ledger takes.
const (
	// OnceWindow is how long an entry of the ledger is kept at least, by the database's clock.
	OnceWindow = 24 * time.Hour
	// MaxOnceKeyBytes is the longest key, in bytes of UTF-8.
	MaxOnceKeyBytes = 512
	// MaxOnceResultBytes is the longest result, in bytes of JSON.
	MaxOnceResultBytes = 64 << 10
)

// Entry names one piece of work in the ledger.
type Entry struct {
	Namespace string   // keys of different namespaces have nothing to do with each other
	Key       string   // the caller's idempotency key
	Resource  string   // the full resource of the claim that the work is done under
	Request   [32]byte // SHA-256 of what is to be done
}

// Check returns nil for an entry that can be made, and otherwise an error that matches ErrInvalid.
func (e Entry) Check() error {
	switch {
	case e.Key == "" || len(e.Key) > MaxOnceKeyBytes:
		return invalidf("an idempotency key has 1 to %d bytes, not %d", MaxOnceKeyBytes, len(e.Key))
	case !isText(e.Key):
		return invalidf("the idempotency key is not UTF-8 text without U+0000")
	case e.Namespace == "" || e.Resource == "":
		return invalidf("the ledger needs a namespace and a resource")
	}
	return nil
}

func (e Entry) args() []any { return []any{e.Namespace, e.Key, e.Resource, e.Request[:]} }

// LookOnce reads the result of an entry's work, as JSON. It is found once the work has been committed; it asks
// no fence, so the result of done work is there for a stale claim too. Errors: ErrInvalid, ErrKeyReused,
// ErrUnavailable. ctx bounds the call.
func LookOnce(ctx context.Context, db Querier, e Entry) (result []byte, found bool, err error) {
	return once(ctx, db, "look into the ledger", `SELECT fencepost.once_look($1::text, $2::text, $3::text, $4::bytea)`, e)
}

const beginOnceSQL = `SELECT fencepost.once_begin($1::text, $2::text, $3::text, $4::bytea)`

// BeginOnce enters the work in the ledger before it is done, in the transaction that is to do it, after
// the guard. Where the work has been done already, result is what it returned, done is true and nothing
// is left to do. It waits for another transaction that is at the same work. Errors are those of LookOnce.
func BeginOnce(ctx context.Context, tx pgx.Tx, e Entry) (result []byte, done bool, err error) {
	if err := checkFree(tx.Conn()); err != nil {
		return nil, false, err
	}
	return once(ctx, tx, "begin once", beginOnceSQL, e)
}

// Begun is what [QueueBeginOnce] brings: the result of the work where it has been done already, as JSON.
type Begun struct {
	Result []byte
	Done   bool
}

// QueueBeginOnce queues what [BeginOnce] sends, for a batch that begins with its guard; the entry has to be one that can
// be made (see [Entry.Check]). The answer is there once the batch has been read; an error shows there too, and is told
// apart by [GuardError].
func QueueBeginOnce(b *pgx.Batch, e Entry) *Begun {
	var begun Begun
	b.Queue(beginOnceSQL, e.args()...).QueryRow(func(row pgx.Row) error {
		var result *string
		err := row.Scan(&result)
		if result != nil {
			begun = Begun{Result: []byte(*result), Done: true}
		}
		return err
	})
	return &begun
}

func once(ctx context.Context, db Querier, verb, sql string, e Entry) ([]byte, bool, error) {
	if err := e.Check(); err != nil {
		return nil, false, err
	}
	var result *string
	if err := db.QueryRow(ctx, sql, e.args()...).Scan(&result); err != nil {
		return nil, false, interpretOwn(ctx, verb, err)
	}
	if result == nil {
		return nil, false, nil
	}
	return []byte(*result), true, nil
}

// EndOnce records the result of the work that BeginOnce began in tx: JSON of up to MaxOnceResultBytes, else
// ErrInvalid. Other errors: ErrUnavailable. ctx bounds the call.
func EndOnce(ctx context.Context, tx pgx.Tx, e Entry, result []byte) error {
	if len(result) > MaxOnceResultBytes {
		return invalidf("a result has up to %d bytes of JSON, not %d", MaxOnceResultBytes, len(result))
	}
	if err := checkFree(tx.Conn()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT fencepost.once_end($1::text, $2::text, $3::text)`, e.Namespace, e.Key, string(result))
	return interpretOwn(ctx, "end once", err)
}

// purgeBatch is how many entries one statement of PurgeOnce deletes.
const purgeBatch = 10_000

// PurgeOnce forgets the entries of a namespace whose work ended longer ago than age, by the database's clock,
// and returns how many, also beside an error. An age below OnceWindow is ErrInvalid: a retry would do the work
// again. It deletes in portions, each committed on its own; conn must not be in a transaction. Other
// errors: ErrUnavailable, ErrOutcomeUnknown. ctx bounds the call.
func PurgeOnce(ctx context.Context, conn *pgx.Conn, namespace string, age time.Duration) (purged int64, err error) {
	if age < OnceWindow {
		return 0, invalidf("entries younger than %v are not purged, so not all older than %v", OnceWindow, age)
	}
	if err := checkIdle(conn); err != nil {
		return 0, err
	}
	interval := fmt.Sprintf("%d microseconds", age.Microseconds())
	for {
		var n int64
		err := pipeline(ctx, conn, "purge the ledger", func(b *pgx.Batch) {
			b.Queue(`SELECT fencepost.once_purge($1::text, $2::text::interval, $3::integer)`, namespace, interval, purgeBatch).
				QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		})
		if err != nil {
			return purged, notGranted(err)
		}
		purged += n
		if n < purgeBatch {
			return purged, nil
		}
	}
}
