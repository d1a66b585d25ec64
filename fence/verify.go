package fence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// Querier is what [Verify] reads through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ProblemKind tells problems of protected tables apart.
type ProblemKind string

// The kinds of problems that [Verify] finds.
const (
	// ProblemTable: the table no longer fits its rule: a column is missing, may be NULL, or has another type; or
	// another table inherits from it.
	ProblemTable ProblemKind = "table"
	// ProblemMissing: the table, or a partition of it, lacks a trigger. A new partition lacks the one
	// against TRUNCATE until protect is called again.
	ProblemMissing ProblemKind = "missing"
	// ProblemDisabled: a trigger does not fire, or does not fire when it should.
	ProblemDisabled ProblemKind = "disabled"
	// ProblemAltered: a trigger, or its function, is not the one that protect made.
	ProblemAltered ProblemKind = "altered"
	// ProblemOrder: another trigger may change a row after it was checked.
	ProblemOrder ProblemKind = "order"
	// ProblemRecreated: the table was dropped and created again, without its protection.
	ProblemRecreated ProblemKind = "recreated"
	// ProblemSwapped: the table was renamed, and its old name belongs to another table, which is not protected. Writes
	// to that name are not checked. Protect the other table, and then protect the renamed one again or unprotect it; or
	// give the table its old name back.
	ProblemSwapped ProblemKind = "swapped"
	// ProblemRenamed: the table has another name than when it was protected. Its protection is still in place. To
	// confirm the new name, protect the table again by that name.
	ProblemRenamed ProblemKind = "renamed"
	// ProblemStray: a table has a trigger of fencepost's that protect does not know about. A detached partition keeps
	// the one against TRUNCATE, for example.
	ProblemStray ProblemKind = "stray"
	// ProblemRight: a right in the schema fencepost is too wide, missing or lost, as after a dump without privileges.
	// Relation is the table or function. migrations.Up, run as the schema's owner, repairs what it can.
	ProblemRight ProblemKind = "right"
	// ProblemUnknown: the table could not be checked, because of the error in Text. For example, a lock on one of its
	// partitions was not available within a second. The other tables were checked.
	ProblemUnknown ProblemKind = "unknown"
)

// Problem is one way in which a protected table is less than protected.
type Problem struct {
	Table    string // the protected table, schema and name, quoted where they must be
	Relation string // the table or partition that has the problem
	Kind     ProblemKind
	Text     string // for people
}

// String returns the problem in one line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s (%s)", p.Relation, p.Text, p.Kind) }

const verifySQL = `SELECT protected, relation, kind, problem FROM fencepost.verify() WHERE ` + pgsql.OnPrimary

// Verify compares the protected tables with what fencepost.protect recorded, and returns the differences. If there are
// none, all protections are in place. It only reads the catalog: it finds changes by users who may alter a table (a new
// partition, a disabled trigger, a changed column), and never a write. Calling fencepost.protect again repairs what can
// be repaired.
//
// It needs the rights that fencepost.grant_owner or fencepost.grant_operator gives to a role. It checks all protected
// tables, of any owner.
//
// The error is ErrUnavailable also if a standby answers, because it may not have replayed the removal of a protection.
// It is the server's own error (SQLSTATE 42501) if the role may not execute fencepost.verify. ctx bounds the call.
// Verify is safe for concurrent use if db is.
func Verify(ctx context.Context, db Querier) (problems []Problem, err error) {
	err = pgsession.OnConn(ctx, db, "verify", func(db pgsession.Querier) error {
		rows, err := db.Query(ctx, verifySQL)
		if err == nil {
			problems, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Problem])
		}
		return pgerr.NotMigrated(pgerr.Interpret(ctx, "verify", err, false))
	})
	return problems, err
}
