package fence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ProblemKind tells problems of protected tables apart.
type ProblemKind string

// The kinds of problems that [Verify] finds.
const (
	// ProblemTable: the table no longer fits its rule: a column is gone, may be NULL, or has another
	// type; or something inherits from it.
	ProblemTable ProblemKind = "table"
	// ProblemMissing: the table, or a partition of it, lacks a trigger. A new partition lacks the one
	// against TRUNCATE until protect is called again.
	ProblemMissing ProblemKind = "missing"
	// ProblemDisabled: a trigger does not fire, or not when it should.
	ProblemDisabled ProblemKind = "disabled"
	// ProblemAltered: a trigger, or its function, is not the one that protect made.
	ProblemAltered ProblemKind = "altered"
	// ProblemOrder: another trigger may change a row after it was checked.
	ProblemOrder ProblemKind = "order"
	// ProblemRecreated: the table was dropped and made anew, without its door.
	ProblemRecreated ProblemKind = "recreated"
	// ProblemStray: a table has a trigger of ours that protect does not know of, as a partition that was
	// detached keeps the one against TRUNCATE.
	ProblemStray ProblemKind = "stray"
	// ProblemUnknown: the table could not be looked at, because of the error in Text: a lock on one of its partitions
	// was not to be had within a second, for one. The other tables were looked at.
	ProblemUnknown ProblemKind = "unknown"
)

// Problem is one way in which a protected table is less than protected.
type Problem struct {
	Table    string // the protected table, schema and name, quoted where they must be
	Relation string // the table or partition that has the problem
	Kind     ProblemKind
	Text     string // for people
}

// String says all of it in a line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s (%s)", p.Relation, p.Text, p.Kind) }

const verifySQL = `SELECT protected, relation, kind, problem FROM fencepost.verify()`

// Verify compares the protected tables with what fencepost.protect was told, and returns what is
// wrong; none means that all doors stand. It only reads the catalog: it finds what was done to a table
// by those who may alter it (a new partition, a trigger disabled, a column changed), never a write.
// Calling fencepost.protect again repairs what can be repaired.
//
// It takes what fencepost.grant_owner gives to a role, and looks at all protected tables, whoever owns them.
//
// Errors: ErrUnavailable, and the server's own (SQLSTATE 42501) where the role may not execute fencepost.verify. ctx
// bounds the call. It is safe for concurrent use as far as db is.
func Verify(ctx context.Context, db Querier) ([]Problem, error) {
	rows, err := db.Query(ctx, verifySQL)
	if err != nil {
		return nil, interpret(ctx, "verify", err, false)
	}
	problems, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Problem])
	return problems, interpret(ctx, "verify", err, false)
}
