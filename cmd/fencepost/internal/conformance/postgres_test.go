package conformance_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/conformance"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestAPostgreSQLHolds(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"without migrations": testenv.EmptyDatabase(t),
		"with them":          testenv.Database(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want(t, verdicts(t, &conformance.Options{Postgres: config(t, url)}), conformance.OK, nil)
			wantNoTrace(t, url)
		})
	}
}

// Runs at the same time do not disturb each other, nor a migrator at work.
func TestRunsAtTheSameTimeHold(t *testing.T) {
	t.Parallel()
	url, client := testenv.Database(t), testenv.RedisOn(t, testenv.OwnRedis(t).URL())
	conn, err := pgx.ConnectConfig(t.Context(), config(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock(1179534157, 0)`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			report, err := conformance.Run(t.Context(), &conformance.Options{Postgres: config(t, url), Redis: client})
			if err != nil || !report.Holds() {
				t.Errorf("%v: %+v", err, report)
			}
		})
	}
	all.Wait()
	wantNoTrace(t, url)
}

// gate is the condition that a function of the library did not get a gate.
func gate(indent, function string) string {
	return "NOT pg_catalog.pg_try_advisory_xact_lock(\n" + indent + "1179534160, pg_catalog.hashtext(" + function +
		`.resource COLLATE pg_catalog."C")) THEN`
}

// withTheirDependents returns the verdicts on checks that failed, and on those that are not tried because of it.
func withTheirDependents(failed []string) map[string]conformance.Verdict {
	some := make(map[string]conformance.Verdict)
	for _, name := range failed {
		some[name] = conformance.Failed
		needed := map[string]string{
			"functions": "claim durable guard overtaken snapshot commit once protection now marked drawn lost-update",
			"claim":     "durable guard overtaken snapshot protection now marked drawn lost-update",
		}[name]
		for _, name := range strings.Fields(needed) {
			some[name] = conformance.NotTried
		}
	}
	return some
}

// Each experiment can fail: if a part of the library's SQL is removed, its check fails.
func TestControl_EachCheckFindsWhatIsTakenOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string
		failed   []string
	}{
		"the comparison of a claim": {"AND f.token < claim.token AND", "AND", []string{"claim"}},
		"the lock of the guard":     {"FOR SHARE;\n    IF ", ";\n    IF ", []string{"guard", "overtaken"}},
		"the comparison of the guard": {
			"AND f.token OPERATOR(pg_catalog.=) guard.token AND f.nonce OPERATOR(pg_catalog.=) guard.nonce",
			"",
			[]string{"overtaken", "lost-update"},
		},
		"the comparison of a claim that does not wait": {
			"AND f.token OPERATOR(pg_catalog.<) claim_now.token\n", "\n", []string{"now"},
		},
		"the gate of a claim that does not wait": {
			"OR " + gate("            ", "claim_now"), "THEN", []string{"now"},
		},
		"the gate of a transaction that claims": {
			"IF " + gate("        ", "claim_marked"), "IF false THEN", []string{"marked"},
		},
		"the locks of a transaction that draws": {
			"IF NOT pg_catalog.pg_try_advisory_xact_lock(draw_marked.key)\n        OR " + gate("            ", "draw_marked"),
			"IF false THEN",
			[]string{"drawn"},
		},
		"the wait for the disk": {"PERFORM set_config('synchronous_commit', 'on', true);", "NULL;", []string{"durable"}},
		"the look at snapshots": {"USING ERRCODE = '40001'", "USING ERRCODE = 'ZF001'", []string{"snapshot"}},
		"the question for an id": {
			"status := pg_xact_status(settle.xid::xid8);",
			"status := 'committed';",
			[]string{"commit"},
		},
		"the result of a key": {"RETURN entry.result::text;", "RETURN NULL;", []string{"once"}},
		"a function":          {"CREATE FUNCTION fencepost.mark(", "CREATE FUNCTION fencepost.other(", []string{"functions"}},
		"the triggers": {
			"'FOR EACH ROW EXECUTE FUNCTION", "'FOR EACH STATEMENT EXECUTE FUNCTION",
			[]string{"protection"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := 0
			edit := func(sql string) string {
				edited += strings.Count(sql, c.old)
				return strings.ReplaceAll(sql, c.old, c.new)
			}
			url := testenv.EmptyDatabase(t)
			got := verdicts(t, conformance.Edited(conformance.Options{Postgres: config(t, url)}, edit))
			if edited == 0 {
				t.Fatal("nothing was taken out: the control shows nothing")
			}
			want(t, got, conformance.OK, withTheirDependents(c.failed))
			wantNoTrace(t, url)
		})
	}
}

// This is a table whose UPDATE finds its rows by the snapshot and does not check them again after a wait. PostgreSQL
// has no such tables, but a view can behave like one.
func TestControl_AnUpdateThatDoesNotLookAgain(t *testing.T) {
	t.Parallel()
	const view = `
		CREATE TABLE $1."inner" $2;
		CREATE VIEW $1."account" AS SELECT * FROM $1."inner";
		CREATE FUNCTION $1."write"() RETURNS trigger LANGUAGE plpgsql AS $$$$
		BEGIN
			IF TG_OP <> 'INSERT' THEN
				PERFORM FROM $1."inner" WHERE id = OLD.id FOR UPDATE;
				DELETE FROM $1."inner" WHERE id = OLD.id;
			END IF;
			IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
			INSERT INTO $1."inner" VALUES (NEW.*);
			RETURN NEW;
		END $$$$;
		CREATE TRIGGER t INSTEAD OF INSERT OR UPDATE OR DELETE ON $1."account" FOR EACH ROW EXECUTE FUNCTION $1."write"();`
	made := regexp.MustCompile(`(?s)^CREATE TABLE ("\w+")\."account" (\(.*\))$`)
	edit := func(sql string) string { return made.ReplaceAllString(sql, view) }
	url := testenv.EmptyDatabase(t)
	got := verdicts(t, conformance.Edited(conformance.Options{Postgres: config(t, url)}, edit))
	if got["update"].Verdict != conformance.Failed {
		t.Errorf("update is %s", got["update"].Verdict)
	}
	wantWhy(t, got, "update", "written over a newer one")
	wantNoTrace(t, url)
}

// This is a server whose advisory locks lock nothing. Some servers that speak PostgreSQL's protocol were like that.
func TestControl_AdvisoryLocksThatLockNothing(t *testing.T) {
	t.Parallel()
	server := testenv.OwnPostgres(t, "-c", "allow_system_table_mods=on")
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		`ALTER FUNCTION pg_catalog.pg_advisory_xact_lock(int, int) RENAME TO real_lock`,
		`ALTER FUNCTION pg_catalog.pg_advisory_xact_lock_shared(int, int) RENAME TO real_lock_shared`,
		`ALTER FUNCTION pg_catalog.pg_try_advisory_lock(bigint) RENAME TO real_try_lock`,
		`CREATE FUNCTION pg_catalog.pg_advisory_xact_lock(int, int) RETURNS void LANGUAGE sql AS ''`,
		`CREATE FUNCTION pg_catalog.pg_advisory_xact_lock_shared(int, int) RETURNS void LANGUAGE sql AS ''`,
		`CREATE FUNCTION pg_catalog.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	got := verdicts(t, &conformance.Options{Postgres: config(t, server.URL())})
	if got["gate"].Verdict != conformance.Failed || got["session"].Verdict != conformance.Failed {
		t.Errorf("gate is %s, session %s", got["gate"].Verdict, got["session"].Verdict)
	}
	wantWhy(t, got, "gate", "did not wait")
	wantWhy(t, got, "session", "not refused to another")
	wantNoTrace(t, server.URL())
}

// with returns an address with one more parameter.
func with(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// emptyWith makes a database, and returns its address with one more parameter.
func emptyWith(name, value string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return with(t, testenv.EmptyDatabase(t), name, value)
	}
}

// speakingASCII is the address of a SQL_ASCII database for a client that does not declare its encoding.
func speakingASCII(t *testing.T) string {
	t.Helper()
	return with(t, testenv.EncodedDatabase(t, "SQL_ASCII"), "client_encoding", "SQL_ASCII")
}

// What an address or a role can make unfit.
func TestWhatMakesAPostgreSQLUnfitIsFound(t *testing.T) {
	t.Parallel()
	needFunctions := strings.Fields(`functions claim durable guard overtaken snapshot commit once protection
		now marked drawn lost-update`)
	needEncoding := strings.Fields(`update catalog copy session claim durable guard overtaken snapshot once protection
		now marked drawn lost-update`)
	needTable := append([]string{"update", "catalog", "pipeline", "limits", "copy"}, needFunctions...)
	untried := func(of ...string) map[string]conformance.Verdict {
		some := make(map[string]conformance.Verdict)
		for _, name := range of {
			some[name] = conformance.NotTried
		}
		return some
	}
	for name, c := range map[string]struct {
		url    func(t *testing.T) string
		failed string
		why    string
		others map[string]conformance.Verdict
	}{
		"a role without rights": {withoutRights, "table", "42501", untried(needTable...)},
		"read-only": {
			emptyWith("default_transaction_read_only", "on"),
			"primary", "read-only", untried(append([]string{"gate", "table", "session"}, needTable...)...),
		},
		"SQL_ASCII":                   {speakingASCII, "encoding", "client_encoding=UTF8", untried(needEncoding...)},
		"warnings that are kept back": {emptyWith("client_min_messages", "error"), "notices", "not heard", nil},
		"triggers that do not fire": {
			emptyWith("session_replication_role", "replica"), "protection",
			"without a claim", nil,
		},
		"no server": {
			func(*testing.T) string { return "postgres://somebody:hunter2@127.0.0.1:1/none" }, "connect", "connect",
			untried(append([]string{"primary", "encoding", "settings", "notices", "gate", "table", "session"}, needTable...)...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := c.url(t)
			got := verdicts(t, &conformance.Options{Postgres: config(t, address)})
			some := map[string]conformance.Verdict{c.failed: conformance.Failed}
			for name, verdict := range c.others {
				some[name] = verdict
			}
			want(t, got, conformance.OK, some)
			wantWhy(t, got, c.failed, c.why)
			if name != "no server" {
				wantNoTrace(t, address)
			}
		})
	}
}

// In a database that is not UTF-8, every check passes once the client declares its encoding.
func TestASQLASCIIDatabaseHoldsForAClientThatSpeaksUTF8(t *testing.T) {
	t.Parallel()
	url := testenv.EncodedDatabase(t, "SQL_ASCII")
	want(t, verdicts(t, &conformance.Options{Postgres: config(t, url)}), conformance.OK, nil)
}

// withoutRights is the address of a database for a role that may do nothing in it.
func withoutRights(t *testing.T) string {
	t.Helper()
	address := testenv.EmptyDatabase(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	pool := testenv.PoolOn(t, address)
	role := "conforming_" + strings.TrimPrefix(u.Path, "/")
	if _, err := pool.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), `DROP ROLE `+role) })
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

func TestAStandbyIsFound(t *testing.T) {
	t.Parallel()
	pair := testenv.PostgresPair(t)
	got := verdicts(t, &conformance.Options{Postgres: config(t, pair.Standby.URL())})
	if got["primary"].Verdict != conformance.Failed || got["table"].Verdict != conformance.NotTried {
		t.Errorf("primary is %s, table %s", got["primary"].Verdict, got["table"].Verdict)
	}
	wantWhy(t, got, "primary", "standby")
}

// Behind a pooler every check passes except those that no pooler can pass. These do not fail the run, because a user
// can do without them.
func TestBehindAPoolerOnlySessionLocksAreLeftOut(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	pooler := testenv.PgBouncer(t, url, &services.PgBouncerOptions{PoolSize: 6})
	opts := &conformance.Options{Postgres: config(t, with(t, pooler.URL(), "default_query_exec_mode", "exec"))}
	got := verdicts(t, opts)
	want(t, got, conformance.OK, map[string]conformance.Verdict{"session": conformance.NotTried})
	wantWhy(t, got, "session", "pooler")
	wantNoTrace(t, url)
}

// Whenever a run is interrupted, what it has made is removed.
func TestAnInterruptedRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"table", "functions", "guard"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			report, err := conformance.Run(ctx, &conformance.Options{Postgres: config(t, url), Each: func(r conformance.Result) {
				if r.Name == after {
					interrupt()
				}
			}})
			if err == nil || report.Holds() || report.Count(conformance.NotTried) == 0 {
				t.Errorf("an interrupted run: %v, %+v", err, report)
			}
			wantNoTrace(t, url)
		})
	}
}
