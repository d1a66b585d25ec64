package fencepost

import (
	"reflect"
	"slices"
	"strings"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// field is a field of a row's struct, and the column that it stands for.
type field struct {
	column string
	path   []int // as reflect.Value.FieldByIndex takes it
}

// fieldsOf returns the fields of T that stand for columns. Statements name the columns, so a column that is added while
// connections are open changes nothing. The matching rule is pgx's own.
func fieldsOf[T any](table string, known []pgtable.Column) ([]field, error) {
	typ := reflect.TypeFor[T]()
	if typ.Kind() != reflect.Struct {
		return nil, invalidf("%v is not a struct", typ)
	}
	fields, err := fieldsOfType(table, typ, nil, known)
	if err == nil && len(fields) == 0 {
		err = invalidf("%v has no field for a column", typ)
	}
	return fields, err
}

func fieldsOfType(table string, typ reflect.Type, at []int, known []pgtable.Column) ([]field, error) {
	var fields []field
	for i := range typ.NumField() {
		f := typ.Field(i)
		path := append(slices.Clone(at), i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			inner, err := fieldsOfType(table, f.Type, path, known)
			if err != nil {
				return nil, err
			}
			fields = append(fields, inner...)
			continue
		}
		tag, tagged := f.Tag.Lookup("db")
		tag, _, _ = strings.Cut(tag, ",")
		if !f.IsExported() || tag == "-" {
			continue
		}
		c := match(f.Name, tag, tagged, known)
		switch {
		case c == nil:
			return nil, &fence.TableError{Table: table, Problem: "no column for field " + f.Name + " of " + typ.String()}
		case !c.Readable():
			return nil, &fence.TableError{
				Table:   table,
				Problem: "no privilege: SELECT on column \"" + c.Name + "\", of field " + f.Name,
			}
		}
		fields = append(fields, field{column: c.Name, path: path})
	}
	return fields, nil
}

// match finds the column of a field. A tag names the column, and an exact match comes first. Without a tag, the field's
// name is matched ignoring case and underscores.
func match(name, tag string, tagged bool, known []pgtable.Column) *pgtable.Column {
	if tagged {
		for i, c := range known {
			if c.Name == tag {
				return &known[i]
			}
		}
	}
	for i, c := range known {
		if tagged && strings.EqualFold(c.Name, tag) {
			return &known[i]
		}
		if !tagged && strings.EqualFold(bare(c.Name), bare(name)) {
			return &known[i]
		}
	}
	return nil
}

func bare(name string) string { return strings.ReplaceAll(name, "_", "") }
