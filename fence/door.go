package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Door is the rule by which a protected table names the resources of its rows, as fencepost.protect was told: the
// namespace, ":", the prefix, and the values of the columns, in their order.
type Door struct {
	Namespace, Prefix string
	Columns           []string
	TokenColumn       string
}

// Equal reports whether two doors are the same.
func (d Door) Equal(o Door) bool {
	return d.Namespace == o.Namespace && d.Prefix == o.Prefix && d.TokenColumn == o.TokenColumn && slices.Equal(d.Columns, o.Columns)
}

// String is for people.
func (d Door) String() string {
	return fmt.Sprintf("namespace %q, prefix %q, columns %q, token column %q", d.Namespace, d.Prefix, d.Columns, d.TokenColumn)
}

const doorSQL = `SELECT namespace, prefix, columns, token_column FROM fencepost.door_rule($1::text, $2::text)`

// DoorOf returns the rule by which a table is protected, or the partitioned table that it is a part of; nil where none is.
// Whoever may enter may ask. It is what protect was told: whether the door still stands is for [Verify] to say.
//
// Errors: ErrInvalid before anything is sent, ErrUnavailable. ctx bounds the call.
func DoorOf(ctx context.Context, db Querier, t Table) (*Door, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	var d Door
	err := db.QueryRow(ctx, doorSQL, t.Schema, t.Name).Scan(&d.Namespace, &d.Prefix, &d.Columns, &d.TokenColumn)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, interpretOwn(ctx, "ask for the door", err)
	}
	return &d, nil
}
