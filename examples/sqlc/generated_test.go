package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The generated code is that of queries.sql and schema.sql as they stand. sqlc itself takes longer to build than
// all the examples to test; what it makes of a query and of a table of this size can be told without it.
func TestTheGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	if want, got := queriesOf(t, read(t, "queries.sql")), constantsOf(t, "shopdb/queries.sql.go"); !maps.Equal(got, want) {
		t.Errorf("generate again: shopdb has %q, and queries.sql %q", got, want)
	}
	if want, got := columnsOf(t, read(t, "schema.sql")), fieldsOf(t, "shopdb/models.go"); got != want {
		t.Errorf("generate again: shopdb has the columns %s, and schema.sql %s", got, want)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// queriesOf returns the queries by their heads, each as sqlc writes it into Go: named arguments numbered in their
// order.
func queriesOf(t *testing.T, text string) map[string]string {
	t.Helper()
	queries := map[string]string{}
	for _, part := range strings.Split(text, "-- name: ")[1:] {
		head, query, _ := strings.Cut(strings.TrimSpace(part), "\n")
		numbers := map[string]int{}
		queries[head] = regexp.MustCompile(`sqlc\.arg\((\w+)\)`).
			ReplaceAllStringFunc(strings.TrimSuffix(query, ";"), func(arg string) string {
				if numbers[arg] == 0 {
					numbers[arg] = len(numbers) + 1
				}
				return fmt.Sprintf("$%d", numbers[arg])
			})
	}
	if len(queries) == 0 {
		t.Fatal("no queries were found")
	}
	return queries
}

// constantsOf returns the queries of a generated file by their heads.
func constantsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	queries := map[string]string{}
	walk(t, file, func(n ast.Node) {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		if rest, found := strings.CutPrefix(text, "-- name: "); found {
			head, query, _ := strings.Cut(strings.TrimSpace(rest), "\n")
			queries[head] = query
		}
	})
	return queries
}

// columnsOf lists the columns of the one table of a schema, as the names and types of sqlc's fields.
func columnsOf(t *testing.T, text string) string {
	t.Helper()
	columns := regexp.MustCompile(`(?m)^    (\w+) +bigint\b`).FindAllStringSubmatch(text, -1)
	if len(columns) != strings.Count(text, "\n    ") {
		t.Fatalf("%s: a column is no bigint, or stands beside another", text)
	}
	var fields []string
	for _, column := range columns {
		name := ""
		for _, word := range strings.Split(column[1], "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		fields = append(fields, strings.ReplaceAll(name, "Id", "ID")+" int64")
	}
	return strings.Join(fields, ", ")
}

func fieldsOf(t *testing.T, file string) string {
	t.Helper()
	var fields []string
	walk(t, file, func(n ast.Node) {
		if field, ok := n.(*ast.Field); ok {
			fields = append(fields, fmt.Sprintf("%s %s", field.Names[0], field.Type))
		}
	})
	return strings.Join(fields, ", ")
}

func walk(t *testing.T, file string, visit func(ast.Node)) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		visit(n)
		return true
	})
}
