// Package sqlfiles writes migrations as files of SQL for other tools: goose, golang-migrate, Flyway, Atlas, dbmate, and
// psql.
//
// A [Step] is one migration, up and down, as lists of statements. [Own] returns the library's own migrations as steps,
// and [Level.Steps] those that protect a table. A [Format] spells a step as the files of one tool, and a [Folder] gives
// the files the numbers that follow those that are there.
//
// The files of the library's own migrations keep the records of fencepost's version table. So a database that one of
// these tools has migrated is a migrated one to `fencepost migrate`, and the files do nothing in a database that
// `fencepost migrate` has migrated. Each of them waits for the migration lock, as `fencepost migrate` does.
package sqlfiles
