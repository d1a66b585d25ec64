package fencepost

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// ResourceRule determines which resource a row belongs to, from the values of its key columns alone. [PerRow],
// [PerGroup] and [Constant] return rules. The zero value is invalid.
//
// The rule is data, so every program that writes the table, and the database's own trigger, computes the same name. The
// name is the prefix followed by the values, each as PostgreSQL prints it (column::text). A single value is used as it
// is. Several values are joined with "/", after "%" has been replaced by "%25" and "/" by "%2F" in each of them, so
// different values never give the same name.
//
// Columns of a rule must be part of the table's key, because a row never moves to another resource. Their types are
// smallint, integer, bigint, text, varchar, uuid, or a domain over one of these. Other types have several texts for one
// value, or a text that depends on settings.
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

// PerRow gives each row a resource of its own. The name is prefix, followed by the values of all key columns in the
// order of [TableSpec].Key.
func PerRow(prefix string) ResourceRule { return ResourceRule{kind: perRow, prefix: prefix} }

// PerGroup gives one resource to all rows that share the values of some key columns. The name is prefix, followed by
// these values in the order of columns.
func PerGroup(prefix string, columns ...string) ResourceRule {
	return ResourceRule{kind: perGroup, prefix: prefix, columns: slices.Clone(columns)}
}

// Constant gives all rows of a table one resource.
func Constant(name string) ResourceRule { return ResourceRule{kind: constant, prefix: name} }

// Prefix returns the text with which every resource of the rule begins. For a Constant it is the whole name.
func (r ResourceRule) Prefix() string { return r.prefix }

// Columns returns the columns of a [PerGroup] rule, in its order. It is nil for [PerRow], which takes all columns of
// the table's key, and for [Constant], which takes none.
func (r ResourceRule) Columns() []string { return slices.Clone(r.columns) }

// columnsOf returns the rule's columns, for a table with this key.
func (r ResourceRule) columnsOf(key []string) []string {
	if r.kind == perRow {
		return key
	}
	return r.columns
}

// check refuses, before anything is sent, a rule that is invalid for a table with this key.
func (r ResourceRule) check(key []string) error {
	switch {
	case r.kind == noRule:
		return invalidf("a table needs a resource rule: PerRow, PerGroup or Constant")
	case r.kind == constant && r.prefix == "":
		return invalidf("a constant resource needs a name")
	case r.kind == perGroup && len(r.columns) == 0:
		return invalidf("a resource per group needs the columns of the group")
	}
	for i, column := range r.columns {
		if !slices.Contains(key, column) {
			return invalidf("column %q of the resource rule is not part of the key %q", column, key)
		}
		if slices.Contains(r.columns[:i], column) {
			return invalidf("column %q is named twice in the resource rule", column)
		}
	}
	return nil
}

// checkProtection reports whether the table is protected. It refuses a rule that differs from the rule of the
// protection.
func (r ResourceRule) checkProtection(ctx context.Context, s *Store, table pgtable.Table) (protected bool, err error) {
	protection, err := pgtable.ProtectionOf(ctx, s.pool, table)
	if err != nil || protection == nil {
		return false, err
	}
	own := pgtable.Protection{
		Namespace: s.opts.Namespace, Prefix: r.prefix, Columns: r.columnsOf(table.Key), TokenColumn: table.TokenColumn(),
	}
	if protection.Equal(own) {
		return true, nil
	}
	return true, &fence.TableError{Table: table.String(), Problem: fmt.Sprintf(
		"its protection (fencepost.protect) has %v, and this program %v", protection, own)}
}

// compile binds a rule to the columns of a table, as the catalog describes them.
func (r ResourceRule) compile(table pgtable.Table, known []pgtable.Column) (*rule, error) {
	compiled := &rule{prefix: r.prefix, codec: newKeyCodec()}
	for _, name := range r.columnsOf(table.Key) {
		i := slices.IndexFunc(known, func(c pgtable.Column) bool { return c.Name == name })
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
