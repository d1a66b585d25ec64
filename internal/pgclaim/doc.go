// Package pgclaim raises fences and enters transactions under claims, over pgx and database/sql. Package fence exports
// most of it. The forms that queue into a batch are for the root package.
package pgclaim
