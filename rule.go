package fencepost

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencepost-pg/fencepost/fence"
)

// ResourceRule says which resource a row belongs to, from the values of its key columns alone. It is made
// by [PerRow], [PerGroup] or [Constant]; the zero value is refused.
//
// The rule is data, so that every program that writes the table, and the database's own trigger, computes the
// same name. It is the prefix and then the values, each as PostgreSQL prints it (column::text). A single value
// stands as it is; several are joined with "/", after "%" has become "%25" and "/" has become "%2F" in each of
// them, so that different values never give one name.
//
// Columns of a rule are part of the table's key, since a row never moves to another resource, and are smallint,
// integer, bigint, text, varchar or uuid, or a domain over one of these: other types have several texts for
// one value, or settings decide about their text.
type ResourceRule struct {
	kind    ruleKind
	prefix  string
	columns []string // of a group
}

type ruleKind uint8

const (
	noRule ruleKind = iota
	perRow
	perGroup
	constant
)

// PerRow gives each row a resource of its own: prefix, then the values of all key columns, in the order of
// [TableSpec].Key.
func PerRow(prefix string) ResourceRule { return ResourceRule{kind: perRow, prefix: prefix} }

// PerGroup gives the rows that share the values of some key columns one resource: prefix, then these values, in
// the order given here.
func PerGroup(prefix string, columns ...string) ResourceRule {
	return ResourceRule{kind: perGroup, prefix: prefix, columns: slices.Clone(columns)}
}

// Constant gives all rows of a table one resource.
func Constant(name string) ResourceRule { return ResourceRule{kind: constant, prefix: name} }

// Prefix returns what every resource of the rule begins with: the whole of it for a Constant.
func (r ResourceRule) Prefix() string { return r.prefix }

// columnsOf returns the rule's columns, for a table with this key.
func (r ResourceRule) columnsOf(key []string) []string {
	if r.kind == perRow {
		return key
	}
	return r.columns
}

// check refuses, before anything is sent, a rule that cannot be for a table with this key.
func (r ResourceRule) check(key []string) error {
	switch {
	case r.kind == noRule:
		return invalidf("a table needs a resource rule: PerRow, PerGroup or Constant")
	case r.kind == constant && r.prefix == "":
		return invalidf("a constant resource needs a name")
	case r.kind == perGroup && len(r.columns) == 0:
		return invalidf("a resource per group needs the columns that tell a group")
	}
	for i, column := range r.columns {
		if !slices.Contains(key, column) {
			return invalidf("column %q of the resource rule is not part of the key %q", column, key)
		}
		if slices.Contains(r.columns[:i], column) {
			return invalidf("column %q stands twice in the resource rule", column)
		}
	}
	return nil
}

// checkDoor tells whether the table has a door, and refuses a rule that is not the one by which that names resources.
func (r ResourceRule) checkDoor(ctx context.Context, s *Store, table fence.Table) (protected bool, err error) {
	door, err := fence.DoorOf(ctx, s.pool, table)
	if err != nil || door == nil {
		return false, err
	}
	own := fence.Door{
		Namespace: s.opts.Namespace, Prefix: r.prefix, Columns: r.columnsOf(table.Key), TokenColumn: table.TokenColumn(),
	}
	if door.Equal(own) {
		return true, nil
	}
	return true, &fence.TableError{Table: table.String(), Problem: fmt.Sprintf(
		"its door (fencepost.protect) has %v, and this program %v", door, own)}
}

// compile binds a rule to the columns of a table, as the catalog knows them.
func (r ResourceRule) compile(table fence.Table, known []fence.Column) (*rule, error) {
	compiled := &rule{prefix: r.prefix, codec: newKeyCodec()}
	for _, name := range r.columnsOf(table.Key) {
		i := slices.IndexFunc(known, func(c fence.Column) bool { return c.Name == name })
		kind, err := kindOf(table.String(), known[i])
		if err != nil {
			return nil, err
		}
		compiled.parts = append(compiled.parts, rulePart{
			place: slices.Index(table.Key, name), column: name, kind: kind, most: known[i].Length,
		})
	}
	return compiled, nil
}
