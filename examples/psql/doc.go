// Package psql shows plain psql taking part, without a line of Go: story.sh claims a resource with
// `SELECT fencepost.claim(…)`, enters it at the top of its transactions with `SELECT
// fencepost.enter(…)`, and is refused by PostgreSQL once another claim has overtaken it.
//
//	DATABASE_URL=postgres://… ./story.sh
//
// The database needs fencepost's migrations (`fencepost migrate up`). The script creates the schema
// shop where it is missing. No Redis is asked: nothing says who may work now, so each claim takes
// over from the one before.
package psql
