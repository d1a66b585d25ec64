package sqlfiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/sqlfiles"
)

var (
	now  = time.Date(2026, 11, 30, 14, 5, 9, 0, time.UTC)
	step = sqlfiles.Step{
		Title: "fencepost_x", Mark: "fencepost migration 7: x", Up: []string{"SELECT 1;"}, Down: []string{"SELECT 2;"},
	}
)

// A new file gets the number that its tool would give it, after the last existing one.
func TestFilesFollowThoseThatAreThere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format sqlfiles.Format
		there  string
		want   string // the name of the first of two steps' files
		then   string // and of the second's
	}{
		{sqlfiles.Plain, "", "00001_fencepost_x.up.sql", "00002_fencepost_x.up.sql"},
		{sqlfiles.Goose, "", "00001_fencepost_x.sql", "00002_fencepost_x.sql"},
		{sqlfiles.Goose, "00009_a.sql 00010_b.go readme.md", "00011_fencepost_x.sql", "00012_fencepost_x.sql"},
		{sqlfiles.Goose, "20261130140500_a.sql", "20261130140509_fencepost_x.sql", "20261130140510_fencepost_x.sql"},
		{
			sqlfiles.Goose, "00001_a.sql 20270101235959_b.sql", "20270102000000_fencepost_x.sql",
			"20270102000001_fencepost_x.sql",
		},
		{sqlfiles.GolangMigrate, "", "000001_fencepost_x.up.sql", "000002_fencepost_x.up.sql"},
		{sqlfiles.GolangMigrate, "9_a.up.sql 9_a.down.sql", "10_fencepost_x.up.sql", "11_fencepost_x.up.sql"},
		{sqlfiles.GolangMigrate, "099_a.up.sql", "100_fencepost_x.up.sql", "101_fencepost_x.up.sql"},
		{sqlfiles.GolangMigrate, "1764511509_a.up.sql", "1796047509_fencepost_x.up.sql", "1796047510_fencepost_x.up.sql"},
		{sqlfiles.GolangMigrate, "1796047600_a.up.sql", "1796047601_fencepost_x.up.sql", "1796047602_fencepost_x.up.sql"},
		{sqlfiles.Flyway, "", "V1__fencepost_x.sql", "V2__fencepost_x.sql"},
		{sqlfiles.Flyway, "V1.9__a.sql V1.10__b.sql R__view.sql", "V1.11__fencepost_x.sql", "V1.12__fencepost_x.sql"},
		{sqlfiles.Flyway, "V2__a.sql V1_7__b.sql", "V3__fencepost_x.sql", "V4__fencepost_x.sql"},
		{sqlfiles.Dbmate, "", "20261130140509_fencepost_x.sql", "20261130140510_fencepost_x.sql"},
		{sqlfiles.Dbmate, "001_a.sql", "002_fencepost_x.sql", "003_fencepost_x.sql"},
		{sqlfiles.Atlas, "atlas.sum", "20261130140509_fencepost_x.sql", "20261130140510_fencepost_x.sql"},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.there) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		folder, err := sqlfiles.OpenFolder(dir, c.format)
		if err != nil {
			t.Fatal(err)
		}
		files := folder.Number([]sqlfiles.Step{step, step}, now)
		if got, then := files[0].Name, files[len(files)/2].Name; got != c.want || then != c.then {
			t.Errorf("%s after %q: %s, then %s; want %s, then %s", c.format, c.there, got, then, c.want, c.then)
		}
	}
}

// A change that a file of the folder already makes is not written again, whatever name and number that file has.
func TestAStepThatIsThereIsLeftOut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	folder, err := sqlfiles.OpenFolder(dir, sqlfiles.Goose)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := folder.Write(folder.Number(folder.Missing([]sqlfiles.Step{step}), now))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	if _, err := folder.Write(folder.Number([]sqlfiles.Step{step}, now)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file was written over: %v", err)
	}
	if err := os.Rename(paths[0], filepath.Join(dir, "00400_renamed.sql")); err != nil {
		t.Fatal(err)
	}
	folder, err = sqlfiles.OpenFolder(dir, sqlfiles.Goose)
	if err != nil {
		t.Fatal(err)
	}
	other := step
	other.Mark = "fencepost migration 8: y"
	if missing := folder.Missing([]sqlfiles.Step{step, other}); len(missing) != 1 || missing[0].Mark != other.Mark {
		t.Errorf("missing: %+v", missing)
	}
}
