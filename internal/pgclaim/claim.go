package pgclaim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/token"
)

// MaxResourceBytes is the longest resource, in bytes of UTF-8.
const MaxResourceBytes = 1024

// Claim is the result of raising a fence: the resource, the token that its fence was raised to, and the nonce that
// proves whose claim it is. In JSON it is one document, which may be passed to another process. It is a secret: anyone
// who has it can write under it.
type Claim struct {
	Resource string      `json:"resource"`
	Token    token.Token `json:"token"`
	Nonce    token.Nonce `json:"nonce"`
}

// Check returns nil for a valid claim, and otherwise an error that matches ErrInvalid. The resource must be 1 to
// MaxResourceBytes bytes of UTF-8 without U+0000, which PostgreSQL's text cannot hold. The token must be positive. The
// nonce must be set.
func (c Claim) Check() error {
	switch {
	case c.Resource == "" || len(c.Resource) > MaxResourceBytes:
		return pgerr.Invalidf("a resource has 1 to %d bytes, not %d", MaxResourceBytes, len(c.Resource))
	case !encoding.IsText(c.Resource):
		return pgerr.Invalidf("the resource is not UTF-8 text without U+0000")
	case c.Nonce.IsZero():
		return pgerr.Invalidf("the claim has no nonce")
	}
	return c.Token.Check()
}

// RaiseOptions are the settings of [Raise]. A nil pointer means the defaults.
type RaiseOptions struct {
	// Label is stored with the claim for people: UTF-8 without U+0000. Default "".
	Label string
	// Wait is how long the server lets the claim wait for guarded transactions under older tokens. A claim that would
	// have to wait longer is not made: ErrUnavailable, with SQLSTATE 57014 in the chain. Default 0: until ctx ends.
	Wait time.Duration
}

// patience is how long a claim may wait on the server: until the given time or, if it is zero, until ctx ends.
type patience struct{ until time.Time }

// resolve refuses an invalid claim before anything is sent, and starts the wait.
func (o *RaiseOptions) resolve() (label string, p patience, err error) {
	switch {
	case o == nil:
		return "", patience{}, nil
	case !encoding.IsText(o.Label):
		return "", patience{}, pgerr.Invalidf("the label is not UTF-8 text without U+0000")
	case o.Wait < 0:
		return "", patience{}, pgerr.Invalidf("Wait %v is negative", o.Wait)
	case o.Wait > 0:
		p.until = time.Now().Add(o.Wait)
	}
	return o.Label, p, nil
}

func (p patience) over() bool { return !p.until.IsZero() && !time.Now().Before(p.until) }

// longestWait bounds one claim statement on the server if ctx has no deadline, so that a client that vanished does not
// leave it waiting forever. Raise then sends another.
const longestWait = time.Minute

// ErrWaited says that a claim waited on the server until ctx ended, and was not made.
var ErrWaited = errors.New("guarded transactions under older tokens are open")

// longestMargin is the most by which the server's bound precedes the end of ctx.
const longestMargin = 100 * time.Millisecond

// BeforeEnd is the time at which the server ends a claim's wait, so that its answer still arrives before ctx ends. ok
// is false if ctx has no deadline.
func BeforeEnd(ctx context.Context) (end time.Time, ok bool) {
	deadline, ok := ctx.Deadline()
	return deadline.Add(-min(longestMargin, time.Until(deadline)/8)), ok
}

// AwaitEnd waits for the end of ctx if it is too near for another claim, and reports whether it was.
func AwaitEnd(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > 2*longestMargin {
		return false
	}
	<-ctx.Done()
	return true
}

// Raise is fence.Raise.
func Raise(ctx context.Context, conn *pgx.Conn, c Claim, opts *RaiseOptions) error {
	if err := c.Check(); err != nil {
		return err
	}
	label, p, err := opts.resolve()
	if err != nil {
		return err
	}
	if err := pgsession.CheckIdle(conn); err != nil {
		return err
	}
	waits := !pgsession.Direct(conn) // the first try does not
	return untilAnswered(ctx, c, p, func() (answer, error) {
		if !waits {
			waits = true
			a, asked, err := raiseNow(ctx, conn, c, label)
			if asked {
				return a, err
			}
		}
		return raise(ctx, conn, c, label, p)
	})
}

// answer is the fence's to a claim.
type answer struct {
	claimed bool
	current token.Token // what the fence carries, or the floor
	refusal pgerr.Refusal
}

// untilAnswered makes a claim and returns the fence's answer. It retries if only the server's own bound ended the
// claim.
func untilAnswered(ctx context.Context, c Claim, p patience, claim func() (answer, error)) error {
	for {
		a, err := claim()
		switch {
		case err != nil && pgerr.TimedOut(err) && ctx.Err() == nil && !p.over():
			if AwaitEnd(ctx) {
				return fmt.Errorf("%w: %w", pgerr.WithEnd(ctx, err), ErrWaited)
			}
			continue // the server's bound, not the caller's
		case err != nil:
			return pgerr.WithEnd(ctx, err)
		case a.claimed:
			return nil
		case c.Token > a.current:
			return &pgerr.JumpError{Resource: c.Resource, Token: c.Token, Current: a.current}
		default:
			return a.refusal.Stale(c.Resource, c.Token, a.current)
		}
	}
}

const (
	// A transaction_timeout, which exists from PostgreSQL 17 on, ends with the transaction that sets it to 0. For a
	// setting that does not exist current_setting returns NULL, and CASE then evaluates nothing further.
	claimBoundsSQL = `SELECT pg_catalog.set_config('statement_timeout', $1, true),
		pg_catalog.set_config('lock_timeout', '0', true),
		CASE WHEN pg_catalog.current_setting('transaction_timeout', true) OPERATOR(pg_catalog.<>) '0'
		THEN pg_catalog.set_config('transaction_timeout', '0', true) END`
	claimSQL = `SELECT claimed, current, coalesce(refusal::text, '')
		FROM fencepost.claim($1::text, $2::bigint, $3::uuid, $4::text)`
)

func raise(ctx context.Context, conn *pgx.Conn, c Claim, label string, p patience) (a answer, err error) {
	err = pgsession.Pipeline(ctx, conn, "claim "+strconv.Quote(c.Resource), func(b *pgx.Batch) {
		b.Queue(claimBoundsSQL, p.onServer(ctx))
		b.Queue(claimSQL, c.Resource, int64(c.Token), c.Nonce.Hex(), label).
			QueryRow(func(row pgx.Row) error { return a.scan(row) })
	})
	return a, pgerr.NotGranted(err)
}

// scan reads the row of claimSQL.
func (a *answer) scan(row interface{ Scan(dest ...any) error }) error {
	var refusal string
	if err := row.Scan(&a.claimed, &a.current, &refusal); err != nil {
		return err
	}
	a.refusal = pgerr.ReadRefusal(refusal)
	return nil
}

const claimNowSQL = `SELECT fencepost.claim_now($1::text, $2::bigint, $3::uuid, $4::text)::text`

// raiseNow makes a claim that waits for nobody, in one statement that commits by itself. asked is false if the claim
// was not made, because it would have had to wait.
func raiseNow(ctx context.Context, conn *pgx.Conn, c Claim, label string) (a answer, asked bool, err error) {
	p := pgsession.NewParams(len(c.Resource) + len(label) + paramBytes).
		Text(c.Resource).Int(int64(c.Token)).Hex(c.Nonce[:]).Text(label)
	before := pgsession.Unsynced(conn)
	said, err := pgsession.AskDirect(ctx, conn, claimNowSQL, p)
	var row [3]string // claimed, current and refusal; NULL if it was not made
	columns(said, row[:])
	switch {
	case err == nil && row[0] != "":
		a = answer{claimed: row[0] == "t", refusal: pgerr.ReadRefusal(row[2])}
		if a.current, err = tokenOf(row[1]); err == nil {
			err = pgsession.Waited(conn, "claim", before)
		}
		return a, true, err
	case err == nil || MayWait(err) && ctx.Err() == nil:
		return answer{}, false, nil
	}
	err = pgerr.Interpret(ctx, "claim "+strconv.Quote(c.Resource), err, !pgsession.Unprepared(err))
	return answer{}, true, pgerr.NotGranted(err)
}

// onServer is the statement_timeout, in milliseconds, that matches ctx. A lock_timeout would not do, because it never
// fires against a stream of share lockers.
func (p patience) onServer(ctx context.Context) string {
	wait := longestWait
	if end, ok := BeforeEnd(ctx); ok {
		wait = min(wait, time.Until(end))
	}
	if !p.until.IsZero() {
		wait = min(wait, time.Until(p.until))
	}
	return fmt.Sprint(max(1, wait.Milliseconds()))
}

// EnterText enters one resource; its arguments are [EnterArgs].
const EnterText = `SELECT fencepost.enter($1::text, $2::bigint, $3::uuid)`

// Enter is fence.Enter. For many claims use [QueueEnterAll].
func Enter(ctx context.Context, tx pgx.Tx, c Claim) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := pgsession.CheckReady(tx.Conn()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, EnterText, EnterArgs(c)...)
	return pgerr.InterpretOwn(ctx, "guard", err)
}

// QueueEnter queues the statement of [Enter] for a batch that begins with it. Its error appears when the batch is read;
// [GuardError] interprets it.
func QueueEnter(b *pgx.Batch, c Claim) { b.Queue(EnterText, EnterArgs(c)...) }

const enterAllText = `SELECT fencepost.enter_all($1::text[], $2::bigint[], $3::text[]::uuid[])`

// QueueEnterAll is [QueueEnter] for several claims at once, in time linear in their number. It guards them in the order
// of their resources, whatever order they come in, so every caller uses the same order.
func QueueEnterAll(b *pgx.Batch, claims []Claim) {
	if len(claims) == 1 {
		QueueEnter(b, claims[0])
		return
	}
	resources, tokens, nonces := arraysOf(claims)
	b.Queue(enterAllText, resources, tokens, nonces)
}

// GuardError is fence.GuardError. It turns the error of a batch with a queued guard into this library's outcomes.
func GuardError(ctx context.Context, err error) error {
	err = pgerr.Interpret(ctx, "guard", err, false)
	if server, ok := pgerr.ServerError(err); ok && server.Code == pgerr.CodeInsufficientPrivilege {
		return pgerr.NotGranted(err)
	}
	return err
}

// OwnError is [GuardError] for a batch that names only fencepost's own objects in the database.
func OwnError(ctx context.Context, err error) error { return pgerr.InterpretOwn(ctx, "guard", err) }

// EnterArgs are the arguments of [EnterText].
func EnterArgs(c Claim) []any { return []any{c.Resource, int64(c.Token), c.Nonce.Hex()} }

// Sent is a claim and the arguments that send it. A lease makes them once, and not for each of its writes.
type Sent struct {
	Claim

	Args []any // of EnterText; not to be modified
}

// Send makes the arguments of a claim.
func Send(c Claim) Sent { return Sent{Claim: c, Args: EnterArgs(c)} }
