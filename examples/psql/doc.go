// Package psql uses plain psql, without a line of Go. story.sh claims a resource with `SELECT fencepost.claim(…)` and
// enters it at the top of its transactions with `SELECT fencepost.enter(…)`. Once another claim has overtaken it,
// PostgreSQL refuses it.
//
//	DATABASE_URL=postgres://… ./story.sh
//
// The database needs fencepost's migrations (`fencepost migrate up`). The script creates the schema shop if it does not
// exist. It uses no Redis: nothing says who may work now, so each claim takes over from the one before.
package psql
