// Package migrations creates what fencepost needs in PostgreSQL: the schema fencepost with the
// table fence and the functions claim and enter, the ledger of keys, and the functions that protect a
// table; it gives a table its token column ([TokenColumn]) and its door ([Protect]), and roles what they
// need ([Grant]).
//
// It embeds goose migrations and runs them. What it guarantees:
//
//   - Any number of processes may run it at once: each migration is applied by exactly one, and
//     stands in the version table once.
//   - A process that is killed leaves nothing locked. Its migration is rolled back, at once if it
//     was between two statements, and within a second or two of the kill inside one (where
//     PostgreSQL can tell: version 14 and later, on Linux; else when that statement ends).
//   - Where nothing is pending, nothing is locked: a program that migrates when it starts does so
//     beside another's long migration.
//   - It works behind PgBouncer in transaction mode, if the driver does, and with one connection.
//   - search_path does not matter.
//
// What it does not: it cannot keep a migration short that a caller adds in Options.Also.
//
// # How
//
// The migration lock is an advisory lock of the transaction, taken by the first statement of every
// section of every migration, the function fencepost.begin_migration. So it lives exactly as long
// as the transaction that does the work; nothing has to be released, and no connection is held for
// it. Under the lock the function looks whether the version was done meanwhile, and if so ends the
// section with SQLSTATE ZF100, which the runner takes for success. Then it sets a short
// lock_timeout, since whoever queues for a table lock holds up all who come later. A statement_timeout
// of the session or role applies as ever, to the wait for the lock too.
//
// Schema, version table (fencepost.goose_version) and that function cannot be a migration, since
// goose needs the table before and after. Up creates them under the lock, outside goose, and Down
// leaves them. The table has goose's own columns, so goose's tools can read it.
//
// # Rights
//
// Up and Down need the right to create what they create, and to begin with CREATE on the database,
// unless the schema is there already. A program that only finds everything applied needs USAGE on
// the schema and SELECT on fencepost.goose_version.
//
// Workers need USAGE on the schema and EXECUTE on the functions that fencepost.grant_application grants,
// and no right on any table of it. The owner of a table protects it with what fencepost.grant_owner
// grants: that creates trigger functions in the schema without a right to create anything there, and
// changes no door but the owner's own. fencepost.bypass, an operator's way through a door, is granted to
// people by name.
package migrations
