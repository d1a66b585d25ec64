package fence

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes of this package. Compare with errors.Is. Errors of the caller's own SQL (a violated
// constraint, a wrong type) pass through with the driver's error (pgx's *pgconn.PgError) in the chain.
var (
	// ErrInvalid: refused before anything was sent: a token, name, key or column that cannot be.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: PostgreSQL could not be reached, or refused for reasons of its own; nothing
	// was written.
	ErrUnavailable = token.ErrUnavailable
	// ErrStale: the fence, or the row, has seen a higher token. The error is a *StaleError.
	ErrStale = errors.New("fencepost: stale token")
	// ErrTokenSpent: a bare token met itself on the row: it has written there already. Whether
	// this very write did is unknown.
	ErrTokenSpent = errors.New("fencepost: token already spent on this row")
	// ErrNotFound: there is no such row, or none that this user may see.
	ErrNotFound = errors.New("fencepost: no such row")
	// ErrExists: an insert whose key is taken. Nothing was changed.
	ErrExists = errors.New("fencepost: row exists")
	// ErrRefused: the row is there and the token good enough, yet the database changed nothing: a
	// row-level policy, a trigger, or a missing privilege stands in the way.
	ErrRefused = errors.New("fencepost: refused by the database")
	// ErrOutcomeUnknown: the connection ended, or a commit was answered with a warning, while the
	// write was under way: it may or may not have been committed, or may be undone by a crash.
	ErrOutcomeUnknown = errors.New("fencepost: outcome unknown")
	// ErrKeyReused: an idempotency key has been used with another request, or for another resource. Nothing was
	// written.
	ErrKeyReused = errors.New("fencepost: idempotency key used with another request")
	// ErrJump: a claim more than 2^40 above the fence. The error is a *JumpError.
	ErrJump = errors.New("fencepost: token too far above the fence")
	// ErrTable: the table cannot be fenced as it stands. The error is a *TableError.
	ErrTable = errors.New("fencepost: table cannot be fenced")
)

// StaleError says what refused a token.
type StaleError struct {
	// Resource is the fence that refused. Where a row did, it is the row's table, or the row's
	// resource if a protected table (fencepost.protect) refused.
	Resource string
	Token    token.Token // the token refused
	// Current is the token seen instead; 0 where there is no fence at all. It equals Token where
	// another grant has claimed the same number.
	Current token.Token
	// Row tells that the row carries Current, rather than the fence.
	Row bool
}

func (e *StaleError) Error() string {
	where := "fence"
	if e.Row {
		where = "row"
	}
	return fmt.Sprintf("%v: %q: token %d, %s at %d", ErrStale, e.Resource, e.Token, where, e.Current)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// JumpError says how far a claim would have jumped.
type JumpError struct {
	Resource string
	Token    token.Token // the token refused
	Current  token.Token // what the fence carries, 0 where there is none
}

func (e *JumpError) Error() string {
	return fmt.Sprintf("%v: %q: token %d, fence at %d", ErrJump, e.Resource, e.Token, e.Current)
}

// Is reports whether target is [ErrJump].
func (e *JumpError) Is(target error) bool { return target == ErrJump }

// TableError says why a table cannot be fenced as it stands.
type TableError struct {
	Table   string // schema and name, quoted
	Problem string
}

func (e *TableError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrTable, e.Table, e.Problem) }

// Is reports whether target is [ErrTable].
func (e *TableError) Is(target error) bool { return target == ErrTable }

// SQLSTATEs, of the server and of this library's own functions.
const (
	codeStale                 = "ZF001"
	codeNotEntered            = "ZF004"
	codeKeyReused             = "ZF005"
	codeQueryCanceled         = "57014"
	codeInsufficientPrivilege = "42501"
	codeSerializationFailure  = "40001"
	codeReadOnly              = "25006"
	codeNoSuchStatement       = "26000"
	codeDuplicateStatement    = "42P05"
	codeProtocolViolation     = "08P01" // also a statement described on one server connection and bound on another
)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// interpret turns what pgx, or a driver of database/sql, returned into this package's outcomes.
// commits tells whether the statement could have committed on its own: if so, a connection that
// ended after it was sent leaves the outcome unknown.
func interpret(ctx context.Context, verb string, err error, commits bool) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(err, ended)
	}
	server, answered := serverError(err)
	switch {
	case answered:
		return interpretServer(verb, server, err, commits)
	case neverSent(err):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	case !connectionEnded(err):
		return fmt.Errorf("%s: %w", verb, err) // what the caller passed could not be encoded or scanned
	case commits:
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, verb, err)
	default:
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	}
}

// interpretOwn is interpret for statements that call nothing but functions of fencepost's, and do not commit.
func interpretOwn(ctx context.Context, verb string, err error) error {
	return notGranted(interpret(ctx, verb, err, false))
}

// notGranted says of a refused privilege (42501) that it is one for fencepost's own functions, and what is to be done.
// err comes from a statement that needs no other. The functions need no privilege of the caller's inside.
func notGranted(err error) error {
	server, ok := serverError(err)
	if !ok || server.Code != codeInsufficientPrivilege {
		return err
	}
	return fmt.Errorf("%w: this role may not use fencepost: its owner grants that with SELECT fencepost.grant_application('role'): %w",
		ErrUnavailable, err)
}

func interpretServer(verb string, server *pgconn.PgError, err error, commits bool) error {
	switch code := server.Code; {
	case code == codeStale:
		return staleFrom(server)
	case code == codeNotEntered:
		return notEnteredFrom(server)
	case code == codeKeyReused:
		return fmt.Errorf("%w: %w", ErrKeyReused, err)
	case code == codeNoSuchStatement || code == codeDuplicateStatement || code == codeProtocolViolation && (!commits || refusedBind(server)):
		return fmt.Errorf("%w: %s: behind a pooler in transaction mode set pgx's default_query_exec_mode to exec: %w",
			ErrUnavailable, verb, err)
	case commits && !neverSent(err) && endsSession(server):
		// A pooler speaks here, for a server whose answer it did not see; or a server that ends in
		// the middle of a commit, or right after it, before the commit's own answer was read.
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, verb, err)
	case isUnavailable(code) || isStandby(server):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	default:
		return fmt.Errorf("%s: %w", verb, err)
	}
}

// refusedBind reports whether PostgreSQL itself refused to run a statement. A pooler that has lost the server says FATAL.
func refusedBind(server *pgconn.PgError) bool { return server.SeverityUnlocalized == "ERROR" }

// endsSession reports whether this is the last that is heard of a session, whatever it had been asked to do. (A
// session that was idle for too long had been asked nothing.)
func endsSession(server *pgconn.PgError) bool {
	switch {
	case strings.HasPrefix(server.Code, "08") || server.SeverityUnlocalized == "PANIC":
		return true
	default:
		return server.SeverityUnlocalized == "FATAL" && strings.HasPrefix(server.Code, "57")
	}
}

// isUnavailable reports whether a SQLSTATE is about the server rather than about the statement.
// The server aborted the transaction before it said so.
func isUnavailable(code string) bool {
	switch code {
	case codeReadOnly, // read-only transaction, as on a standby
		"55P03", // lock_timeout
		"25P03", // idle-in-transaction timeout
		"25P04": // transaction timeout
		return true
	}
	switch code[:min(2, len(code))] {
	case "08", "53", "57", "58", "XX":
		return true
	}
	return false
}

// isStandby reports whether a BEGIN was refused because the server is in recovery and cannot write. The SQLSTATE is
// that of any unsupported feature; the setting that was refused can only be transaction_read_only.
func isStandby(server *pgconn.PgError) bool {
	return server.Code == "0A000" && server.Routine == "call_bool_check_hook"
}

// staleFrom reads the DETAIL that fencepost.enter, and the trigger of a protected table, give with
// this SQLSTATE.
func staleFrom(server *pgconn.PgError) error {
	var detail struct {
		Resource string `json:"resource"`
		Token    token.Token
		Current  json.RawMessage
		Row      bool
	}
	if err := json.Unmarshal([]byte(server.Detail), &detail); err != nil {
		return fmt.Errorf("%w: %w", ErrStale, server)
	}
	stale := &StaleError{Resource: detail.Resource, Token: detail.Token, Row: detail.Row}
	// No fence at all is "0", which is no token.
	if err := json.Unmarshal(detail.Current, &stale.Current); err != nil {
		stale.Current = 0
	}
	return stale
}

// neverSent reports whether err came before anything of the statement was sent.
func neverSent(err error) bool {
	var connect *pgconn.ConnectError
	return pgconn.SafeToRetry(err) || sqlNeverSent(err) || errors.As(err, &connect)
}

// connectionEnded reports whether err is about the connection or the context, and not about what
// the caller passed in.
func connectionEnded(err error) bool {
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || sqlConnEnded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// SafeToRetry reports whether the transaction that met err was rolled back for a reason that
// running the whole of it again may not meet: a serialization failure (40001) or a deadlock
// (40P01).
func SafeToRetry(err error) bool {
	server, ok := serverError(err)
	return ok && (server.Code == codeSerializationFailure || server.Code == "40P01")
}

// CommitError says what the error of a COMMIT means; ctx is the one the commit ran under. nil stays
// nil, a commit answered by a rollback is an error, and a connection that ended in between is
// ErrOutcomeUnknown.
func CommitError(ctx context.Context, err error) error {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("commit: %w", err)
	}
	return interpret(ctx, "commit", err, true)
}

// ReadError turns the error of a statement that only reads into this package's outcomes.
func ReadError(ctx context.Context, err error) error { return interpret(ctx, "read", err, false) }
