package fencepost

import (
	"reflect"
	"strings"

	"github.com/fencepost-pg/fencepost/fence"
)

// columnsOf returns the columns that the fields of T stand for. Statements name them, so that a
// column added while connections are open changes nothing. The matching rule is pgx's own.
func columnsOf[T any](table string, known []string) ([]string, error) {
	typ := reflect.TypeFor[T]()
	if typ.Kind() != reflect.Struct {
		return nil, invalidf("%v is not a struct", typ)
	}
	columns, err := fieldColumns(table, typ, known)
	if err == nil && len(columns) == 0 {
		err = invalidf("%v has no field for a column", typ)
	}
	return columns, err
}

func fieldColumns(table string, typ reflect.Type, known []string) ([]string, error) {
	var columns []string
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Anonymous && field.Type.Kind() == reflect.Struct {
			inner, err := fieldColumns(table, field.Type, known)
			if err != nil {
				return nil, err
			}
			columns = append(columns, inner...)
			continue
		}
		tag, tagged := field.Tag.Lookup("db")
		tag, _, _ = strings.Cut(tag, ",")
		if !field.IsExported() || tag == "-" {
			continue
		}
		column := match(field.Name, tag, tagged, known)
		if column == "" {
			return nil, &fence.TableError{Table: table, Problem: "no column for field " + field.Name + " of " + typ.String()}
		}
		columns = append(columns, column)
	}
	return columns, nil
}

// match finds the column of a field: a tag names it, exactly where possible; a field's name stands for a
// column without regard to case and underscores.
func match(name, tag string, tagged bool, known []string) string {
	if tagged {
		for _, column := range known {
			if column == tag {
				return column
			}
		}
	}
	for _, column := range known {
		if tagged && strings.EqualFold(column, tag) {
			return column
		}
		if !tagged && strings.EqualFold(bare(column), bare(name)) {
			return column
		}
	}
	return ""
}

func bare(name string) string { return strings.ReplaceAll(name, "_", "") }
