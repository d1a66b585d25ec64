package sqlfiles

import (
	"fmt"
	"strings"

	"github.com/fencepost-pg/fencepost/migrations"
)

// shortWait keeps a migration that queues for a table from holding up all others for long.
const shortWait = "SET LOCAL lock_timeout = '3s';"

// Steps returns the migrations of a declaration that a folder does not have, in the order in which they run. Of the
// levels Observe and Enforce the folder's last one counts, so a table can go from one to the other and back. Down leads
// to the one before.
func (d *Declaration) Steps(f *Folder) []Step {
	missing := f.Missing([]Step{d.columnStep()})
	switch d.Level {
	case Rule:
		missing = append(missing, f.Missing([]Step{d.ruleStep()})...)
	case Observe, Enforce:
		other := *d
		if other.Level = Observe; d.Level == Observe {
			other.Level = Enforce
		}
		if f.After(d.mark(), other.mark()) {
			break
		}
		before := migrations.Unprotected
		if f.Has(other.mark()) {
			before = other.Mode()
		}
		missing = append(missing, d.protectStep(before))
	}
	return missing
}

// title makes a file's title of words. What may not stand in a file's name becomes a low line.
func title(words ...string) string {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}
	return strings.Map(plain, strings.Join(words, "_"))
}

// columnStep adds the token column as migrations.TokenColumn does: one statement that changes only the catalog.
func (d *Declaration) columnStep() Step {
	table, column := d.Quoted(), quote(d.Table.Column)
	refuse := fmt.Sprintf(`BEGIN
    IF pg_catalog.current_setting('fencepost.force_down', true) IS DISTINCT FROM 'on'
        AND EXISTS (SELECT FROM %s WHERE %s OPERATOR(pg_catalog.>) 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003', MESSAGE = 'rows still carry fencing tokens',
            HINT = 'Without the column overtaken workers could write again. '
                   'If no worker is left: SET fencepost.force_down = on.';
    END IF;
END`, table, column)
	tag := dollarTag(refuse, "fencepost")
	return Step{
		Title: title("fencepost_token_column", d.Table.Schema, d.Table.Name),
		Mark:  fmt.Sprintf("fencepost token column: %s.%s", table, column),
		Up: []string{shortWait, fmt.Sprintf("ALTER TABLE %[1]s ADD COLUMN %[2]s bigint NOT NULL DEFAULT 0,\n"+
			"    ADD CHECK (%[2]s OPERATOR(pg_catalog.>=) 0) NOT VALID;", table, column)},
		Down: []string{
			shortWait,
			"SET LOCAL row_security = off;",
			fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE;", table),
			"DO " + tag + "\n" + refuse + "\n" + tag + ";",
			fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s;", table, column),
		},
	}
}

func (d *Declaration) ruleStep() Step {
	return Step{
		Title: title("fencepost_rule", d.Table.Schema, d.Table.Name),
		Mark:  d.mark(),
		Up:    []string{shortWait, d.CommentSQL()},
		Down:  []string{shortWait, fmt.Sprintf("COMMENT ON COLUMN %s.%s IS NULL;", d.Quoted(), quote(d.Table.Column))},
	}
}

// mark tells a declaration of the level Rule and above from all others: another rule is another migration.
func (d *Declaration) mark() string {
	always := ""
	if d.Replicated {
		always = " replicated"
	}
	return fmt.Sprintf("fencepost %s: %s.%s %s%s", d.Level, d.Quoted(), quote(d.Table.Column), d.Comment(), always)
}

// protectStep locks the table in a statement of its own before it calls fencepost.protect, which would wait for the
// lock with a snapshot. The lock keeps readers out if there are triggers to drop.
func (d *Declaration) protectStep(before migrations.Mode) Step {
	lock := func(mode string) string { return fmt.Sprintf("LOCK TABLE %s IN %s MODE;", d.Quoted(), mode) }
	up := "SHARE ROW EXCLUSIVE"
	back := fmt.Sprintf("SELECT fencepost.unprotect(%s::pg_catalog.regclass);", literal(d.Quoted()))
	if before != migrations.Unprotected {
		up, back = "ACCESS EXCLUSIVE", d.protectSQL(before)
	}
	return Step{
		Title: title("fencepost_protect", d.Table.Schema, d.Table.Name, string(d.Level)),
		Mark:  d.mark(),
		Up:    []string{shortWait, lock(up), d.protectSQL(d.Mode())},
		Down:  []string{shortWait, lock("ACCESS EXCLUSIVE"), back},
	}
}

func (d *Declaration) protectSQL(mode migrations.Mode) string {
	columns := make([]string, len(d.Columns))
	for i, column := range d.Columns {
		columns[i] = literal(column)
	}
	return fmt.Sprintf("SELECT fencepost.protect(target => %s::pg_catalog.regclass, namespace => %s,\n"+
		"    prefix => %s, columns => ARRAY[%s]::pg_catalog.name[],\n"+
		"    token_column => %s, mode => %s, replicated => %t);",
		literal(d.Quoted()), literal(d.Namespace), literal(d.Prefix), strings.Join(columns, ", "),
		literal(d.Table.Column), literal(string(mode)), d.Replicated)
}
