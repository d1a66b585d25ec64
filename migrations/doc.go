// Package migrations creates what fencepost needs in PostgreSQL: the schema fencepost with the table fence, the
// functions claim and enter, the ledger of keys, and the functions that protect a table. It also adds the token column
// to a table ([TokenColumn]), protects a table ([Protect]), and grants roles what they need ([Grant]).
//
// It embeds goose migrations and runs them. It guarantees the following:
//
//   - Any number of processes may run it at once. Exactly one of them applies each migration, and the version table
//     records each migration once.
//   - A process that is killed leaves nothing locked. Its migration is rolled back: at once if the process was between
//     two statements, and within a second or two if it was inside a statement. PostgreSQL notices the kill inside a
//     statement from version 14 on, on Linux; elsewhere the rollback comes when that statement ends.
//   - If no migration is pending, it takes no lock. A program that migrates at its start does not wait for the long
//     migration of another program.
//   - It works behind PgBouncer in transaction mode, if the driver does, and with a single connection.
//   - It works under any search_path.
//   - The rights in the schema are those that the design needs. Up repairs rights that are too wide, missing or lost,
//     for example after a dump without privileges.
//
// It cannot keep a migration short that a caller adds in Options.Also.
//
// # How
//
// The migration lock is an advisory lock of the transaction. The first statement of every section of every migration
// takes it, by calling the function fencepost.begin_migration. So the lock lives exactly as long as the transaction
// that does the work: nothing has to be released, and the lock needs no connection of its own. Under the lock the
// function checks whether another migrator has applied the version meanwhile. If so, it ends the section with SQLSTATE
// ZF100, which the runner counts as success. Then it sets a short lock_timeout, because a session that queues for a
// table lock blocks every session behind it. A statement_timeout of the session or role still applies, also to the wait
// for the migration lock.
//
// The schema, the version table (fencepost.goose_version) and that function cannot be a migration, because goose needs
// the table before the first migration and after the last. Up creates them under the lock, outside of goose, and Down
// leaves them. The table has goose's own columns, so goose's tools can read it.
//
// # Rights
//
// Up and Down run as the role that owns the schema fencepost. The first Up creates the schema, and needs CREATE on the
// database for that, unless the schema exists already. A program that only finds everything applied needs USAGE on the
// schema and SELECT on fencepost.goose_version, which fencepost.grant_application grants. To every other role Up
// returns an error (SQLSTATE 42501) that names the role that has to migrate.
//
// Workers need what fencepost.grant_application grants: USAGE on the schema, EXECUTE on some functions, and SELECT on
// the version table, but on no other table. The owner of a table needs what fencepost.grant_owner grants, in order to
// protect the table. That right creates trigger functions in the schema, but allows nothing else to be created there,
// and it changes the protections of the owner's own tables only. An operator needs what fencepost.grant_operator
// grants, in order to look. fencepost.bypass lets a person write past a protection, and is granted by name.
package migrations
