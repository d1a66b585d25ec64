package sqlfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/fencepost-pg/fencepost/migrations"
)

// Level is how far a table is protected. Each level includes the ones before it, except that a table is either observed
// or enforced.
type Level string

// The levels.
const (
	// Column adds the token column.
	Column Level = "column"
	// Rule also declares which resource a row belongs to, as a comment on the column. Nothing enforces it.
	Rule Level = "rule"
	// Observe installs the triggers, which log what Enforce would refuse.
	Observe Level = "observe"
	// Enforce installs the triggers, which refuse.
	Enforce Level = "enforce"
)

// Declaration says how a table is to be protected.
type Declaration struct {
	migrations.Protection
	Level Level
}

// pattern splits TABLE or TABLE=RULE. A quoted name is spelled as in SQL.
func pattern() *regexp.Regexp {
	const name = `("(?:[^"]|"")+"|[^".=]+)`
	return regexp.MustCompile(`^` + name + `\.` + name + `(?:=(.*))?$`)
}

// Declare reads a table as it is written on the command line: schema.table, then = and the resource of its rows, if the
// level needs one. In "invoice:{tenant}/{id}" the prefix is "invoice:", and the columns are tenant and id.
func Declare(text string, level Level, protection migrations.Protection) (Declaration, error) {
	d := Declaration{Protection: protection, Level: level}
	m := pattern().FindStringSubmatch(text)
	if m == nil {
		return d, fmt.Errorf(`%q is not a table: write schema.table, or schema.table=resource:{column}`, text)
	}
	d.Table.Schema, d.Table.Name = unquote(m[1]), unquote(m[2])
	if d.Table.Column == "" {
		d.Table.Column = migrations.DefaultColumn
	}
	if err := d.setRule(m[3]); err != nil {
		return d, fmt.Errorf("%q: %w", text, err)
	}
	for _, name := range append([]string{d.Table.Schema, d.Table.Name, d.Table.Column, d.Prefix}, d.Columns...) {
		if strings.ContainsFunc(name, unicode.IsControl) {
			return d, fmt.Errorf("%q: a name has a control character, and a file of SQL has none", text)
		}
	}
	return d, d.check()
}

// setRule reads the resource of a row.
func (d *Declaration) setRule(rule string) error {
	switch {
	case d.Level == Column && rule != "":
		return errors.New("the level column takes no resource")
	case d.Level == Column:
		return nil
	case rule == "":
		return fmt.Errorf("the level %s needs the resource of a row: schema.table=invoice:{id}, or one name for all rows",
			d.Level)
	}
	if !regexp.MustCompile(`^[^{}]*(\{[^{}]+\}(/\{[^{}]+\})*)?$`).MatchString(rule) {
		return fmt.Errorf("%q is not the resource of a row: write a prefix, then the columns as {a}/{b}", rule)
	}
	prefix, columns, found := strings.Cut(rule, "{")
	d.Prefix = prefix
	if found {
		d.Columns = strings.Split(strings.TrimSuffix(columns, "}"), "}/{")
	}
	return nil
}

// check has the library look at the names, as it does for its own migrations.
func (d *Declaration) check() error {
	if d.Level == Column {
		_, err := migrations.TokenColumn(1, d.Table)
		return err
	}
	_, err := migrations.Protect(1, d.Protection)
	return err
}

// Mode is the mode of the triggers, or "" if the level has none.
func (d *Declaration) Mode() migrations.Mode {
	switch d.Level {
	case Observe:
		return migrations.Observe
	case Enforce:
		return migrations.Enforce
	default:
		return migrations.Unprotected
	}
}

// Quoted is the table's name in SQL.
func (d *Declaration) Quoted() string { return quote(d.Table.Schema) + "." + quote(d.Table.Name) }

// Comment is what the level Rule writes on the column.
func (d *Declaration) Comment() string {
	columns := d.Columns
	if columns == nil {
		columns = []string{}
	}
	rule, err := json.Marshal(struct {
		Namespace string   `json:"namespace"`
		Prefix    string   `json:"prefix"`
		Columns   []string `json:"columns"`
	}{d.Namespace, d.Prefix, columns})
	if err != nil {
		panic(err) // texts always have a JSON form
	}
	return "fencepost rule: " + string(rule)
}

// CommentSQL is the statement that writes it.
func (d *Declaration) CommentSQL() string {
	return fmt.Sprintf("COMMENT ON COLUMN %s.%s IS %s;", d.Quoted(), quote(d.Table.Column), literal(d.Comment()))
}

func unquote(name string) string {
	if inner, found := strings.CutPrefix(name, `"`); found {
		return strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `""`, `"`)
	}
	return name
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal is a text in SQL, whatever standard_conforming_strings is.
func literal(text string) string {
	text = strings.ReplaceAll(text, `'`, `''`)
	if strings.Contains(text, `\`) {
		return `E'` + strings.ReplaceAll(text, `\`, `\\`) + `'`
	}
	return `'` + text + `'`
}
