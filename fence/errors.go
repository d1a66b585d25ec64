package fence

import "github.com/fencepost-pg/fencepost/internal/pgerr"

// The outcomes of this package. Compare them with errors.Is. Errors of the caller's own SQL (a violated constraint, a
// wrong type) pass through with the driver's error (pgx's *pgconn.PgError) in the chain.
var (
	// ErrInvalid: a token, name, key or column is invalid, or the client_encoding of the connection is not UTF8. If the
	// package can tell, it refuses the call before anything is sent. Otherwise PostgreSQL refuses it. Nothing was
	// written.
	ErrInvalid = pgerr.ErrInvalid
	// ErrUnavailable: PostgreSQL could not be reached, or refused for reasons of its own; nothing
	// was written.
	ErrUnavailable = pgerr.ErrUnavailable
	// ErrStale: the fence, or the row, has seen a higher token. The error is a *StaleError or a *NotEnteredError.
	ErrStale = pgerr.ErrStale
	// ErrTokenSpent: the row already carries this bare token, so a write under it has been made. Whether that was this
	// very write is unknown.
	ErrTokenSpent = pgerr.ErrTokenSpent
	// ErrNotFound: there is no such row, or none that this user may see.
	ErrNotFound = pgerr.ErrNotFound
	// ErrRefused: the row exists and the token is high enough, but the database changed nothing, because of a row-level
	// policy, a trigger, or a missing privilege.
	ErrRefused = pgerr.ErrRefused
	// ErrOutcomeUnknown: the connection ended during the write, or its commit was answered with a warning. The write
	// may or may not have been committed, or a crash may undo it.
	ErrOutcomeUnknown = pgerr.ErrOutcomeUnknown
	// ErrJump: the token of a claim is more than 2^40 above the fence. The error is a *JumpError.
	ErrJump = pgerr.ErrJump
	// ErrTable: the table cannot be fenced as it is. The error is a *TableError or a *StampError.
	ErrTable = pgerr.ErrTable
)

// StaleError says what refused a token. It matches [ErrStale]. Its fields are
//
//	Resource string       // the fence that refused; if a row did: its table, or its resource in a protected table
//	Token    token.Token  // the token refused
//	Current  token.Token  // the token seen instead; 0 if there is no fence at all; Token itself if another
//	                      // grant has claimed the same number
//	Row      bool         // the row carries Current, rather than the fence
type StaleError = pgerr.StaleError

// JumpError says how far a claim would have jumped. It matches [ErrJump]. Its fields are
//
//	Resource string       // the fence that refused
//	Token    token.Token  // the token refused
//	Current  token.Token  // what the fence carries; 0 if there is no fence
type JumpError = pgerr.JumpError

// TableError says why a table cannot be fenced as it is. It matches [ErrTable]. Its fields are
//
//	Table   string  // schema and name, quoted
//	Problem string  // for people
type TableError = pgerr.TableError

// NotEnteredError is the error of a write to a protected table (fencepost.protect) whose transaction has not entered
// the row's resource. PostgreSQL has aborted that transaction. The error matches [ErrStale], because PostgreSQL cannot
// rule out that the writer was overtaken. After [Enter] it is nearly always a programming error: the transaction
// entered another resource than the row's. To tell the two apart, check for a *NotEnteredError with errors.As before
// you check for ErrStale with errors.Is. It unwraps to the server's error. Its fields are
//
//	Resource  string  // of the row; empty for a TRUNCATE, and for a row whose rule names none because a column is NULL
//	Table     string  // the table or the partition, quoted if it must be
//	Operation string  // INSERT, UPDATE, DELETE or TRUNCATE
type NotEnteredError = pgerr.NotEnteredError

// StampError says that a write was accepted, but its token did not stay in the row: a trigger, or something else in the
// table that writes the token column, put another value there. Nothing was written. Such a table cannot be fenced,
// because its rows would still accept tokens that they have seen, and lower ones. The error matches [ErrTable], and
// never ErrStale. Its fields are
//
//	Table  string       // schema and name, quoted
//	Token  token.Token  // what was to stand in the row
//	Stored token.Token  // what would have stood there; 0 for NULL too
type StampError = pgerr.StampError
