package fence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/token"
)

// MaxResourceBytes is the longest name of a resource, in bytes of UTF-8.
const MaxResourceBytes = pgclaim.MaxResourceBytes

// Claim is the right to write to a resource until a higher token is claimed. A holder gets it by raising the fence. It
// is a plain value. It may be copied, and passed to another process as one JSON document. Its fields are
//
//	Resource string       // the full name, namespace included; JSON "resource"
//	Token    token.Token  // the fencing token; JSON "token"
//	Nonce    token.Nonce  // 128 random bits, unique to the grant; JSON "nonce"
//
// The nonce is a secret: a process that knows it can write under the claim. The method Check returns nil for a claim
// that can be made, and otherwise an error that matches [ErrInvalid]. The resource must be 1 to [MaxResourceBytes]
// bytes of UTF-8 without U+0000, the token must be positive, and the nonce must be set.
type Claim = pgclaim.Claim

// RaiseOptions are the settings of [Raise], [RaiseSQL] and [Draw]. A nil pointer means the defaults.
type RaiseOptions struct {
	// Label is stored with the claim, for people to read. It is UTF-8 without U+0000. Default "".
	Label string
	// Wait is the longest that the server lets the claim wait for guarded transactions under older tokens. A claim that
	// would have to wait longer is not made: ErrUnavailable, with SQLSTATE 57014 in the chain. Default 0: until ctx ends.
	Wait time.Duration
}

// Raise makes a claim: it raises the fence of c.Resource to c.Token in a transaction of its own, and commits it. The
// fence must carry a lower token. Raise waits until guarded transactions under older tokens have ended, or until ctx
// ends. Making the same claim again returns nil again, so after a lost reply the claim may be made again.
//
// conn must not be used by other code while the call runs. It must not be in a transaction, because a claim that is not
// committed excludes nobody; otherwise the error is ErrInvalid.
//
// Errors are *StaleError if the fence carries a higher token, or the same token from another claim; *JumpError if the
// token is more than 2^40 above the fence; ErrInvalid; ErrUnavailable; and ErrOutcomeUnknown. If [Notices] has been set
// up, ErrOutcomeUnknown is also returned when the server warned that the commit may not last.
func Raise(ctx context.Context, conn *pgx.Conn, c Claim, opts *RaiseOptions) error {
	return pgclaim.Raise(ctx, conn, c, (*pgclaim.RaiseOptions)(opts))
}

// Draw claims the next token: it raises the fence of resource by one in a transaction of its own, commits it, and
// returns the claim. It is for grants that do not have a number of their own. It waits as [Raise] does. Concurrent
// calls get different tokens.
//
// conn is as with Raise. After ErrOutcomeUnknown the token may or may not have been used up; another call draws the
// next one. Other errors are ErrInvalid, a *StaleError if the fence carries the highest possible token, and
// ErrUnavailable.
func Draw(
	ctx context.Context, conn *pgx.Conn, resource string, nonce token.Nonce, opts *RaiseOptions,
) (Claim, error) {
	return pgclaim.Draw(ctx, conn, resource, nonce, (*pgclaim.RaiseOptions)(opts))
}

// Enter makes sure that everything in tx is written under the claim. It returns nil only if the fence still carries the
// claim, and then no other claim of the resource commits before tx has ended. Call it at the beginning of tx, before
// the writes, and not inside a savepoint, whose rollback would undo it. To enter several claims, call it once for each,
// sorted by resource.
//
// A *StaleError says that the claim has been overtaken, or was never made. PostgreSQL has then aborted tx, so nothing
// in it commits, even if the error is overlooked. Other errors are ErrInvalid, also if rows or batch results of tx are
// still open, and ErrUnavailable, also if this role may not enter. ctx bounds the call.
//
// Enter reads no clock. The answer is PostgreSQL's alone.
func Enter(ctx context.Context, tx pgx.Tx, c Claim) error { return pgclaim.Enter(ctx, tx, c) }

// GuardError turns the error of [Enter]'s statement into this package's outcomes, if the caller sent that statement
// itself, in a batch or through other code. If something is missing in the database (42P01, for example), the batch's
// own statements may be the cause, so the error does not mention migrations. ctx is the context of the statement.
func GuardError(ctx context.Context, err error) error { return pgclaim.GuardError(ctx, err) }

// Commit commits tx and reports the outcome. nil means committed, as durably as the session asks for. If PostgreSQL
// rolled back instead, Commit returns an error. It returns ErrOutcomeUnknown if the connection ended before the reply,
// or if the server did not wait for its synchronous standby and [Notices] has been set up. Otherwise it returns the
// error of what failed at COMMIT, and nothing was written. If rows or batch results of tx are still open, it returns
// ErrInvalid and sends nothing; roll tx back. ctx bounds the call.
func Commit(ctx context.Context, tx pgx.Tx) error { return pgcommit.Commit(ctx, tx) }

// CommitError turns the error of a COMMIT into this package's outcomes. ctx is the context of the commit. nil stays
// nil, a commit that PostgreSQL answered with a rollback is an error, and a connection that ended before the reply is
// ErrOutcomeUnknown.
func CommitError(ctx context.Context, err error) error { return pgerr.CommitError(ctx, err) }

// SafeToRetry reports whether the transaction that returned err was rolled back for a reason that may not occur again
// if the whole transaction is retried: a serialization failure (40001) or a deadlock (40P01).
func SafeToRetry(err error) bool { return pgerr.SafeToRetry(err) }
