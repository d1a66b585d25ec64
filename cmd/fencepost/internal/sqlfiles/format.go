package sqlfiles

import (
	"fmt"
	"strings"
)

// Format names the tool that a file is for.
type Format string

// The formats.
const (
	Plain         Format = "plain"
	Goose         Format = "goose"
	GolangMigrate Format = "golang-migrate"
	Flyway        Format = "flyway"
	Atlas         Format = "atlas"
	Dbmate        Format = "dbmate"
)

// Direction is up or down.
type Direction string

// The directions. A file of goose and of dbmate has both.
const (
	Up   Direction = "up"
	Down Direction = "down"
	Both Direction = "up and down"
)

// File is one file of a migration.
type File struct {
	Name      string
	Direction Direction
	Text      string
}

// Files returns a step as the files of the format's tool, under a version of the tool's. Atlas has no files for the way
// down: it plans that way itself.
func (f Format) Files(s Step, version string) []File {
	name := version + "_" + s.Title
	up, down := join(s.Up), join(s.Down)
	mark := "-- " + s.Mark + "\n"
	switch f {
	case Goose:
		text := mark + "\n-- +goose Up\n" + gooseSection(s.Up) + "\n-- +goose Down\n" + gooseSection(s.Down)
		return []File{{name + ".sql", Both, text}}
	case Dbmate:
		text := mark + "\n-- migrate:up\n" + readCommitted + up + "\n-- migrate:down\n" + readCommitted + down
		return []File{{name + ".sql", Both, text}}
	case Atlas:
		// Atlas splits a file itself. A line of its own between the statements leaves nothing to guess.
		const delimiter = "-- end of statement"
		statements := append([]string{strings.TrimSpace(readCommitted)}, s.Up...)
		text := "-- atlas:delimiter " + delimiter + "\n\n" + mark + "\n" +
			strings.Join(statements, "\n"+delimiter+"\n\n") + "\n" + delimiter + "\n"
		return []File{{name + ".sql", Up, text}}
	case Flyway:
		return []File{
			{"V" + version + "__" + s.Title + ".sql", Up, mark + "\n" + readCommitted + up},
			{"U" + version + "__" + s.Title + ".sql", Down, mark + "\n" + readCommitted + down},
		}
	default: // golang-migrate and psql send a file as it is, outside of any transaction
		return []File{
			{name + ".up.sql", Up, mark + "\n" + inTransaction(up)},
			{name + ".down.sql", Down, mark + "\n" + inTransaction(down)},
		}
	}
}

// readCommitted begins a file whose tool opens the transaction. Under a stricter level a statement would not see what
// another migrator did while the file waited for the lock.
const readCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n\n"

func inTransaction(sql string) string {
	return fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED;\n\n%s\nCOMMIT;\n", sql)
}

func join(statements []string) string { return strings.Join(statements, "\n\n") + "\n" }

// gooseSection marks each statement with a semicolon inside, because goose splits a section at semicolons.
func gooseSection(statements []string) string {
	var b strings.Builder
	b.WriteString(readCommitted)
	for _, s := range statements {
		if strings.Contains(strings.TrimSuffix(s, ";"), ";") {
			s = "-- +goose StatementBegin\n" + s + "\n-- +goose StatementEnd"
		}
		b.WriteString(s + "\n\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
