package pgerr

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// TimedOut reports whether the server ended a statement because it exceeded its statement_timeout or was cancelled.
func TimedOut(err error) bool {
	server, ok := ServerError(err)
	return ok && server.Code == CodeQueryCanceled
}

// The outcomes of this package. Compare with errors.Is. Errors of the caller's own SQL (a violated
// constraint, a wrong type) pass through with the driver's error (pgx's *pgconn.PgError) in the chain.
var (
	// ErrInvalid: an invalid token, name, key or column, or a connection whose client_encoding is not UTF8. It is
	// refused before anything is sent if possible, and otherwise by PostgreSQL: nothing was written.
	ErrInvalid = token.ErrInvalid
	// ErrUnavailable: PostgreSQL could not be reached, or refused for reasons of its own; nothing
	// was written.
	ErrUnavailable = token.ErrUnavailable
	// ErrStale: the fence, or the row, has seen a higher token. The error is a *StaleError.
	ErrStale = errors.New("fencepost: stale token")
	// ErrTokenSpent: a bare token found itself on the row, so it has written there already. Whether this very write did
	// is unknown.
	ErrTokenSpent = errors.New("fencepost: token already spent on this row")
	// ErrNotFound: the row does not exist, or this user may not see it.
	ErrNotFound = errors.New("fencepost: no such row")
	// ErrExists: the key of an insert is taken. Nothing was changed.
	ErrExists = errors.New("fencepost: row exists")
	// ErrRefused: the row exists and the token is high enough, but the database changed nothing: a row-level policy, a
	// trigger, or a missing privilege prevented it.
	ErrRefused = errors.New("fencepost: refused by the database")
	// ErrOutcomeUnknown: the connection ended, or a commit was answered with a warning, while the write was in
	// progress. The write may or may not have been committed, or a crash may undo it.
	ErrOutcomeUnknown = errors.New("fencepost: outcome unknown")
	// ErrKeyReused: an idempotency key has been used with another request, or for another resource. Nothing was
	// written.
	ErrKeyReused = errors.New("fencepost: idempotency key used with another request")
	// ErrJump: a claim more than 2^40 above the fence. The error is a *JumpError.
	ErrJump = errors.New("fencepost: token too far above the fence")
	// ErrTable: the table cannot be fenced as it stands. The error is a *TableError.
	ErrTable = errors.New("fencepost: table cannot be fenced")
)

// JumpError says how far above the fence a claim would have been.
type JumpError struct {
	Resource string
	Token    token.Token // the token refused
	Current  token.Token // the fence's token; without a fence the floor of collected fences, or 0
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
	codeInvalid               = "ZF002"
	CodeNotEntered            = "ZF004"
	codeKeyReused             = "ZF005"
	codeIncomplete            = "ZF006"
	CodeQueryCanceled         = "57014"
	CodeInsufficientPrivilege = "42501"
	codeNoSchema              = "3F000"
	codeNoFunction            = "42883"
	codeNoTable               = "42P01"
	CodeSerializationFailure  = "40001"
	CodeReadOnly              = "25006"
	codeUntranslatable        = "22P05" // a character that the database's encoding lacks
	CodeInvalidText           = "22P02"
	CodeUnsupported           = "0A000"
	codeNoSuchStatement       = "26000"
	codeDuplicateStatement    = "42P05"
	codeProtocolViolation     = "08P01" // also a statement described on one server connection and bound on another
)

// Invalidf makes an error that matches [ErrInvalid].
func Invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// WithEnd adds the end of ctx to an error that does not match it already.
func WithEnd(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// Interpret turns an error of pgx or a database/sql driver into this package's outcomes. commits means that the
// statement could have committed on its own: then a connection that ended after it was sent leaves the outcome unknown.
func Interpret(ctx context.Context, verb string, err error, commits bool) error {
	if err == nil {
		return nil
	}
	err = WithEnd(ctx, err)
	server, answered := ServerError(err)
	switch {
	case answered:
		return interpretServer(verb, server, err, commits)
	case neverSent(err):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	case !connectionEnded(err):
		return fmt.Errorf("%s: %w", verb, err) // an argument of the caller could not be encoded or scanned
	case commits:
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, verb, err)
	default:
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	}
}

// InterpretOwn is Interpret for statements that call only fencepost's functions and do not commit.
func InterpretOwn(ctx context.Context, verb string, err error) error {
	return NotGranted(Interpret(ctx, verb, err, false))
}

// NotGranted adds to a refused privilege (42501) that it is one for fencepost's own functions, and what to do; it also
// does what [NotMigrated] does. err comes from a statement that needs no other privilege. Inside, the functions need no
// privilege of the caller.
func NotGranted(err error) error {
	server, ok := ServerError(err)
	if !ok || server.Code != CodeInsufficientPrivilege {
		return NotMigrated(err)
	}
	return fmt.Errorf("%w: this role may not use fencepost: its owner grants that with "+
		"SELECT fencepost.grant_application('role') (the role is the one in force, after SET ROLE too): %w",
		ErrUnavailable, err)
}

// NotMigrated adds to a missing schema, function or table (3F000, 42883, 42P01) what creates it, and to an incomplete
// table (ZF006) what completes it. err comes from a
// statement that names only fencepost's own objects; an older release's schema also lacks the newer functions.
func NotMigrated(err error) error {
	server, ok := ServerError(err)
	if !ok {
		return err
	}
	switch server.Code {
	case codeIncomplete:
		return fmt.Errorf("%w: fencepost's tables are incomplete: run fencepost migrate up, or migrations.Up: %w",
			ErrUnavailable, err)
	case codeNoSchema, codeNoFunction, codeNoTable:
		return fmt.Errorf("%w: fencepost's migrations have not been applied to this database: "+
			"run fencepost migrate up, "+
			"or migrations.Up: %w", ErrUnavailable, err)
	}
	return err
}

func interpretServer(verb string, server *pgconn.PgError, err error, commits bool) error {
	switch code := server.Code; {
	case code == codeStale:
		return staleFrom(server)
	case code == CodeNotEntered:
		return notEnteredFrom(server)
	case code == codeInvalid, code == codeUntranslatable:
		return fmt.Errorf("%w: %s: %w", ErrInvalid, verb, err)
	case code == codeKeyReused:
		return fmt.Errorf("%w: %w", ErrKeyReused, err)
	case code == CodeInvalidText:
		return interpretCast(verb, server, err)
	case code == codeNoSuchStatement || code == codeDuplicateStatement ||
		code == codeProtocolViolation && (!commits || refusedBind(server)):
		return fmt.Errorf("%w: %s: behind a pooler in transaction mode set pgx's default_query_exec_mode to exec: %w",
			ErrUnavailable, verb, err)
	case commits && !neverSent(err) && endsSession(server):
		// This comes from a pooler, about a server whose reply it did not see; or from a server that ends in the middle
		// of a commit, or right after it, before the commit's own reply was read.
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, verb, err)
	case timeLimit(code) != "":
		return fmt.Errorf("%w: %s: ended by the server's %s: %w", ErrUnavailable, verb, timeLimit(code), err)
	case code == CodeReadOnly || IsStandby(server):
		return fmt.Errorf("%w: %s: the server takes no writes: "+
			"it is a standby, or default_transaction_read_only is on there: %w", ErrUnavailable, verb, err)
	case isUnavailable(code):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	default:
		return fmt.Errorf("%s: %w", verb, err)
	}
}

// refusedBind reports whether PostgreSQL itself refused to run a statement. A pooler that has lost the server says
// FATAL.
func refusedBind(server *pgconn.PgError) bool { return server.SeverityUnlocalized == "ERROR" }

// endsSession reports whether an error is the last message of a session, whatever it had been asked to do. (A session
// that was idle for too long had been asked nothing.)
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
	case "55P03", // lock_timeout
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

// timeLimit names the setting, of the role, the database or the server, by which PostgreSQL ended a statement or a
// session, because PostgreSQL's own message is localised. It returns "" if there was none.
func timeLimit(code string) string {
	switch code {
	case CodeQueryCanceled:
		return "statement_timeout, or by a cancel"
	case "55P03":
		return "lock_timeout"
	case "25P03":
		return "idle_in_transaction_session_timeout"
	case "25P04":
		return "transaction_timeout"
	case "57P05":
		return "idle_session_timeout"
	}
	return ""
}

// IsStandby reports whether a statement was refused because the server is in recovery. The SQLSTATE is that of any
// unsupported feature. Here only READ WRITE can be refused, or reading an unlogged table: the server's incarnation,
// with which a marked transaction begins.
func IsStandby(server *pgconn.PgError) bool {
	return server.Code == CodeUnsupported &&
		(server.Routine == "call_bool_check_hook" || server.Routine == "get_relation_info")
}

// StatementGone reports whether a statement was refused because it is not prepared, or no longer as it was.
func StatementGone(server *pgconn.PgError) bool {
	return server.Code == codeNoSuchStatement ||
		server.Code == CodeUnsupported && server.Routine == "RevalidateCachedQuery"
}

// neverSent reports whether err occurred before any part of the statement was sent.
func neverSent(err error) bool {
	var connect *pgconn.ConnectError
	return pgconn.SafeToRetry(err) || sqlNeverSent(err) || errors.As(err, &connect)
}

// connectionEnded reports whether err concerns the connection or the context, and not the caller's arguments.
func connectionEnded(err error) bool {
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || sqlConnEnded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// SafeToRetry is fence.SafeToRetry.
func SafeToRetry(err error) bool {
	server, ok := ServerError(err)
	return ok && (server.Code == CodeSerializationFailure || server.Code == "40P01")
}

// CommitError is fence.CommitError.
func CommitError(ctx context.Context, err error) error {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("fencepost: rolled back: a statement had failed, and nothing was written: %w", err)
	}
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("commit: %w", err)
	}
	return Interpret(ctx, "commit", err, true)
}

// ReadError turns the error of a statement that only reads into this package's outcomes.
func ReadError(ctx context.Context, err error) error { return Interpret(ctx, "read", err, false) }
