package migrations_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// audited makes a database where every change of the schema is written down by an event trigger whose function
// names its table without a schema, as it finds it by the database's search_path.
const audited = `CREATE SCHEMA ops;
	CREATE TABLE ops.audit_log (tag text);
	CREATE FUNCTION ops.audit() RETURNS event_trigger
		LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit_log VALUES (tg_tag); END';
	CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION ops.audit();
	DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = "$user", public, ops', current_database()); END $$`

func TestCase49_UpRunsUnderAnEventTriggerThatNamesNoSchema(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	mustExec(t, open(t, url), createAccounts, audited)
	db := open(t, url) // a session that has the database's path
	up(t, db, withColumn(t))
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	if n := value[int](t, db, `SELECT count(*) FROM ops.audit_log WHERE tag = 'CREATE TABLE'`); n < 4 {
		t.Errorf("the trigger saw %d tables made", n)
	}
	opts := withColumn(t)
	opts.Force = true
	if _, err := migrations.Down(t.Context(), db, opts); err != nil {
		t.Error(err)
	}
	// The control: with the library's search_path alone the trigger fails.
	_, err := open(t, withParameter(t, url, "search_path", "pg_catalog, pg_temp")).
		ExecContext(t.Context(), `CREATE TABLE public.mine ()`)
	if sqlState(err) != "42P01" {
		t.Errorf("with another path: %v, want SQLSTATE 42P01: this test shows nothing", err)
	}
}

// The functions that make a protection run with a path of their own, with the rights of the schema's owner: a
// caller's path would lead the trigger's function to tables of the caller's. So the error says what to do.
func TestCase49_ProtectSaysWhatTheEventTriggerNeeds(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	mustExec(t, open(t, url), createAccounts, audited)
	db := open(t, url)
	up(t, db, withColumn(t))
	opts := withColumn(t)
	opts.Also = append(opts.Also, protection(t, 1001, accountsRule("account:")))
	_, err := migrations.Up(t.Context(), db, opts)
	if sqlState(err) != "42P01" || !contains(err, "event trigger") || !contains(err, "SET search_path") {
		t.Errorf("Up = %v, want SQLSTATE 42P01 and what to do", err)
	}
	mustExec(t, db, `ALTER FUNCTION ops.audit() SET search_path = ops`)
	up(t, db, opts)
}
