package sqlfiles

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-pg/fencepost/migrations"
)

// Step is one migration.
type Step struct {
	// Title is the part of a file's name that says what the step does.
	Title string
	// Mark stands as a comment in the step's file, and tells it from the files of all other steps.
	Mark string
	// Version is that of a migration of the library's own, and otherwise 0.
	Version int64
	// Up and Down are statements, each with its semicolon. They run in one transaction, at READ COMMITTED.
	Up, Down []string
}

// awaitLock waits for the migration lock. fencepost's own migrators wait without a snapshot, because CREATE INDEX
// CONCURRENTLY waits for every snapshot. A file cannot, so its wait is bounded.
const awaitLock = `DO $fencepost$
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '30s', true);
    PERFORM pg_catalog.pg_advisory_xact_lock(1179534157, 0);
END
$fencepost$;`

// upBlock applies a migration unless it has been applied, and records it. The statements run by EXECUTE, which knows
// each of them only when its turn comes. There is no exception handler: its subtransaction would have another id than
// the transaction, and the secret's row must carry the transaction's.
const upBlock = `DO %[1]s
BEGIN
    IF EXISTS (SELECT FROM fencepost.goose_version AS v
                WHERE v.version_id OPERATOR(pg_catalog.=) %[2]d AND v.is_applied) THEN
        RETURN; -- by "fencepost migrate up", or by this file
    END IF;
    PERFORM fencepost.begin_migration(%[2]d, true);
    EXECUTE %[3]s
%[4]s
%[3]s;
    INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES (%[2]d, true);
END
%[1]s;`

const downBlock = `DO %[1]s
BEGIN
    IF pg_catalog.to_regclass('fencepost.goose_version') IS NULL THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM fencepost.goose_version AS v
                    WHERE v.version_id OPERATOR(pg_catalog.=) %[2]d AND v.is_applied) THEN
        RETURN; -- taken down already
    END IF;
    PERFORM fencepost.begin_migration(%[2]d, false);
    EXECUTE %[3]s
%[4]s
%[3]s;
    DELETE FROM fencepost.goose_version AS v WHERE v.version_id OPERATOR(pg_catalog.=) %[2]d;
END
%[1]s;`

// Own returns the library's own migrations, in the order of versions.
func Own() ([]Step, error) {
	files := migrations.FS()
	bootstrap, err := fs.ReadFile(files, "bootstrap.sql")
	if err != nil {
		return nil, err
	}
	paths, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, name := range paths {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		step, err := ownStep(path.Base(name), string(text), strings.TrimSpace(string(bootstrap)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func ownStep(name, text, bootstrap string) (Step, error) {
	number, title, _ := strings.Cut(strings.TrimSuffix(name, ".sql"), "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return Step{}, err
	}
	up, down, err := sections(text, version)
	if err != nil {
		return Step{}, err
	}
	before := []string{awaitLock}
	if version == 1 {
		before = append(before, bootstrap)
	}
	return Step{
		Title:   "fencepost_" + title,
		Mark:    fmt.Sprintf("fencepost migration %d: %s", version, title),
		Version: version,
		Up:      append(before, block(upBlock, version, up)),
		Down:    []string{awaitLock, block(downBlock, version, down)},
	}, nil
}

// sections returns what a migration's file does, up and down, without what the blocks do in its place.
func sections(text string, version int64) (up, down string, err error) {
	_, text, found := strings.Cut(text, "-- +goose Up\n")
	up, down, foundDown := strings.Cut(text, "-- +goose Down\n")
	if !found || !foundDown {
		return "", "", fmt.Errorf("it has no section up or no section down")
	}
	annotation := regexp.MustCompile(`(?m)^-- \+goose Statement(Begin|End)\n`)
	strip := func(section string, isUp bool) (string, error) {
		begin := fmt.Sprintf("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\nSELECT fencepost.begin_migration(%d, %t);\n",
			version, isUp)
		rest, found := strings.CutPrefix(section, begin)
		if !found {
			return "", fmt.Errorf("a section does not begin with begin_migration")
		}
		return strings.TrimSpace(annotation.ReplaceAllString(rest, "")), nil
	}
	if up, err = strip(up, true); err != nil {
		return "", "", err
	}
	down, err = strip(down, false)
	return up, down, err
}

func block(format string, version int64, sql string) string {
	inner := dollarTag(sql, "fencepost_sql")
	return fmt.Sprintf(format, dollarTag(sql+inner, "fencepost"), version, inner, sql)
}

// dollarTag returns a dollar quote that does not occur in a text.
func dollarTag(text, word string) string {
	tag := "$" + word + "$"
	for i := 1; strings.Contains(text, tag); i++ {
		tag = fmt.Sprintf("$%s_%d$", word, i)
	}
	return tag
}

// Between returns the steps from one version to another, both included. 0 means the first or the last.
func Between(steps []Step, from, to int64) []Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
		return s.Version < from || to != 0 && s.Version > to
	})
}
