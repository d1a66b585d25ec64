package fence

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/token"
)

// MaxResourceBytes is the longest resource, in bytes of UTF-8.
const MaxResourceBytes = 1024

// Claim is what raising a fence leaves in the holder's hand: the resource, the token that its fence
// was raised to, and the nonce that proves whose claim it is. In JSON it is one document, which may
// be handed to another process; whoever has it can write under it, so it is a secret.
type Claim struct {
	Resource string      `json:"resource"`
	Token    token.Token `json:"token"`
	Nonce    token.Nonce `json:"nonce"`
}

// Check returns nil for a claim that can be made, and otherwise an error that matches ErrInvalid:
// the resource is 1 to MaxResourceBytes bytes of UTF-8 without U+0000, which PostgreSQL's text
// cannot hold; the token is positive; the nonce is set.
func (c Claim) Check() error {
	switch {
	case c.Resource == "" || len(c.Resource) > MaxResourceBytes:
		return invalidf("a resource has 1 to %d bytes, not %d", MaxResourceBytes, len(c.Resource))
	case !isText(c.Resource):
		return invalidf("the resource is not UTF-8 text without U+0000")
	case c.Nonce.IsZero():
		return invalidf("the claim has no nonce")
	}
	return c.Token.Check()
}

func isText(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}

// RaiseOptions are the settings of [Raise]. A nil pointer means the defaults.
type RaiseOptions struct {
	// Label is kept beside the claim for people: UTF-8 without U+0000. Default "".
	Label string
}

// longestWait bounds one claim statement on the server where ctx has no deadline, so that a client
// that vanished does not leave it waiting for ever. Raise then sends another.
const longestWait = time.Minute

// Raise makes a claim: it raises the fence of c.Resource to c.Token, strictly, in a transaction of
// its own, and commits it. It waits for guarded transactions under older tokens to end, until ctx
// ends. Making the same claim again is nil again, so a lost reply may be settled by another call.
//
// conn is used by this call alone while it runs and must not be in a transaction (ErrInvalid): a
// claim that is not committed excludes nobody.
//
// Errors: *StaleError when the fence carries as much or more; *JumpError when the token lies more
// than 2^40 above it; ErrInvalid; ErrUnavailable; ErrOutcomeUnknown, also where the server warned
// that the commit may not last, if [Notices] has been wired in.
func Raise(ctx context.Context, conn *pgx.Conn, c Claim, opts *RaiseOptions) error {
	var label string
	if opts != nil {
		label = opts.Label
	}
	if err := c.Check(); err != nil {
		return err
	}
	if !isText(label) {
		return invalidf("the label is not UTF-8 text without U+0000")
	}
	if err := checkIdle(conn); err != nil {
		return err
	}
	return untilAnswered(ctx, c, func() (bool, token.Token, error) { return raise(ctx, conn, c, label) })
}

// untilAnswered makes a claim, again where only the server's own bound ended it, and says what the fence answered.
func untilAnswered(ctx context.Context, c Claim, claim func() (claimed bool, current token.Token, err error)) error {
	for {
		claimed, current, err := claim()
		switch {
		case err != nil && timedOut(err) && ctx.Err() == nil:
			continue // the server's bound, not the caller's
		case err != nil:
			return err
		case claimed:
			return nil
		case c.Token > current:
			return &JumpError{Resource: c.Resource, Token: c.Token, Current: current}
		default:
			return &StaleError{Resource: c.Resource, Token: c.Token, Current: current}
		}
	}
}

const (
	claimBoundsSQL = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', '0', true)`
	claimSQL       = `SELECT claimed, current FROM fencepost.claim($1::text, $2::bigint, $3::uuid, $4::text)`
)

func raise(ctx context.Context, conn *pgx.Conn, c Claim, label string) (claimed bool, current token.Token, err error) {
	before := warnings(conn)
	err = pipeline(ctx, conn, "claim", func(b *pgx.Batch) {
		b.Queue(claimBoundsSQL, waitOnServer(ctx))
		b.Queue(claimSQL, c.Resource, int64(c.Token), c.Nonce.Hex(), label).
			QueryRow(func(row pgx.Row) error { return row.Scan(&claimed, &current) })
	})
	err = notGranted(err)
	if err == nil && warnings(conn) != before {
		// A cancelled wait for a synchronous standby is a warning, and no other is expected here.
		err = fmt.Errorf("%w: claim: the server warned that it may not last", ErrOutcomeUnknown)
	}
	return claimed, current, err
}

// waitOnServer is the statement_timeout, in milliseconds, that goes with ctx: lock_timeout would
// not do, since it never fires against a stream of share lockers.
func waitOnServer(ctx context.Context) string {
	wait := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return fmt.Sprint(max(1, wait.Milliseconds()))
}

func timedOut(err error) bool {
	server, ok := serverError(err)
	return ok && server.Code == codeQueryCanceled
}

// freeDB is [checkFree] for whatever [Update] writes through. A pool has free connections.
func freeDB(db DB) error {
	switch v := db.(type) {
	case *pgx.Conn:
		return checkFree(v)
	case pgx.Tx:
		return checkFree(v.Conn())
	}
	return nil
}

// checkFree refuses a connection on which the caller has left something open. Nothing can be sent on it until that is
// closed: no fault of the server's.
func checkFree(conn *pgx.Conn) error {
	if conn != nil && conn.PgConn().IsBusy() {
		return invalidf("the connection is busy: rows or batch results on it have not been closed")
	}
	return nil
}

func checkIdle(conn *pgx.Conn) error {
	if err := checkFree(conn); err != nil {
		return err
	}
	if status := conn.PgConn().TxStatus(); status != 'I' {
		return invalidf("the connection is already in a transaction")
	}
	return nil
}

const enterSQL = `SELECT fencepost.enter($1::text, $2::bigint, $3::uuid)`

// Guard makes sure that everything in tx is written under the claim: it returns nil only if the
// fence still carries it, and then no other claim of the resource commits before tx has ended. It
// stands at the top of tx, before the writes; inside a savepoint it would end with the
// savepoint's rollback. Several claims are guarded one call each, sorted by resource.
//
// A *StaleError says that the claim has been overtaken, or never made. PostgreSQL has then aborted
// tx, so that nothing in it commits even where the error is overlooked. ctx bounds the call. Errors
// otherwise: ErrInvalid, also where rows or batch results of tx are open still; ErrUnavailable, also where this role may
// not enter.
//
// It asks no clock: this is PostgreSQL's word.
func Guard(ctx context.Context, tx pgx.Tx, c Claim) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := checkFree(tx.Conn()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, enterSQL, c.enterArgs()...)
	return interpretOwn(ctx, "guard", err)
}

// QueueGuard queues what [Guard] sends, for a batch that begins with it; its error shows when the
// batch is read and is told apart by [GuardError].
func QueueGuard(b *pgx.Batch, c Claim) { b.Queue(enterSQL, c.enterArgs()...) }

// GuardError turns the error of a batch with a queued guard into this package's outcomes.
func GuardError(ctx context.Context, err error) error { return interpretOwn(ctx, "guard", err) }

func (c Claim) enterArgs() []any { return []any{c.Resource, int64(c.Token), c.Nonce.Hex()} }
