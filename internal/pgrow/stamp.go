package pgrow

import (
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// OfTable adds the table and the token to an error of a write, and names the table in an error of the caller's own SQL
// (a constraint, a value). If a rule of the table replaces the write, so that PostgreSQL cannot return rows from it,
// the error matches ErrRefused.
func OfTable(t pgtable.Table, tok token.Token, err error) error {
	if err == nil {
		return nil
	}
	var stamp *pgerr.StampError
	if errors.As(err, &stamp) {
		stamp.Table, stamp.Token = t.String(), tok
		return err
	}
	server, ok := pgerr.ServerError(err)
	if ok && server.Code == pgerr.CodeUnsupported && server.Routine == "RewriteQuery" {
		return fmt.Errorf("%w: a rule of %s stands in for the write: %w", pgerr.ErrRefused, t, err)
	}
	if ok && server.Code != pgerr.CodeInsufficientPrivilege && !pgerr.IsOutcome(err) {
		return fmt.Errorf("fencepost: table %s: %w", t, err)
	}
	return err
}
