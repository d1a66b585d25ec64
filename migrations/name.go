package migrations

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/pressly/goose/v3"
)

// named makes a goose migration in Go and gives it a name like that of a goose file: the version, then what the
// migration does. goose and [Migration] show that name. No such file exists.
func named(version int64, up, down goose.GoFunc, words ...string) *goose.Migration {
	m := goose.NewGoMigration(version, &up, &down)
	m.Source = fmt.Sprintf("%05d_%s.go", version, strings.Map(plain, strings.Join(words, "_")))
	return m
}

// plain replaces what may not stand in a file's name everywhere. To a reader of file names a dot or a slash would end
// it.
func plain(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) {
		return r
	}
	return '_'
}

// nameOf returns the name of a migration from the path of its file. The path of a Go migration without a name is empty.
func nameOf(version int64, source string) string {
	if source == "" {
		return fmt.Sprintf("%05d_go", version)
	}
	base := path.Base(source)
	return strings.TrimSuffix(base, path.Ext(base))
}

// nameOfUnknown returns a name for an applied version that is not known here. The version tells only whose it is.
func nameOfUnknown(version int64) string {
	if version < FirstAlso {
		return fmt.Sprintf("%05d_newer_release", version)
	}
	return fmt.Sprintf("%05d_also", version)
}
