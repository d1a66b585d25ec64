// Package pgsql builds SQL text: quoted names, numbered arguments, and the two expressions that many statements share,
// the stamp check in RETURNING and the check whether a standby answers. It sends nothing.
package pgsql
