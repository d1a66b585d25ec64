package checks_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/checks"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainOfWaiting(m, 3) }

// look runs all checks, and fails the test if something to mend comes without a word what to do, or with a password.
func look(t *testing.T, opts *checks.Options) []checks.Result {
	t.Helper()
	report, err := checks.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Checks {
		if r.Found == "" || (r.Level == checks.Warning || r.Level == checks.Fault) != (r.Do != "") &&
			r.Level != checks.Skipped {
			t.Errorf("a result that says too little, or too much: %+v", r)
		}
		if strings.Contains(r.Found+r.Do, password) {
			t.Errorf("the password is shown: %+v", r)
		}
	}
	return report.Checks
}

// password is that of the roles and users that tests make.
const password = "hunter2"

// want looks for a result of a check that has a level and some words.
func want(t *testing.T, got []checks.Result, name string, level checks.Level, words string) {
	t.Helper()
	var found []checks.Result
	for _, r := range got {
		if r.Name != name {
			continue
		}
		found = append(found, r)
		if r.Level == level && strings.Contains(r.Found+" > "+r.Do, words) {
			return
		}
	}
	t.Errorf("%s: %+v, want %s with %q", name, found, level, words)
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

// execute runs statements in a database. $DB and $ROLE stand for its name and for a role of the test's own.
func execute(t *testing.T, pool *pgxpool.Pool, statements string) {
	t.Helper()
	name := pool.Config().ConnConfig.Database
	for _, sql := range strings.Split(statements, ";\n") {
		sql = strings.NewReplacer("$DB", name, "$ROLE", "doctor_"+name).Replace(sql)
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// as makes a role of the database's own, and returns the address with it.
func as(t *testing.T, pool *pgxpool.Pool, address string) string {
	t.Helper()
	execute(t, pool, `CREATE ROLE $ROLE LOGIN PASSWORD '`+password+`'`)
	t.Cleanup(func() {
		name := pool.Config().ConnConfig.Database
		_, _ = pool.Exec(t.Context(), "DROP OWNED BY doctor_"+name)
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("doctor_"+pool.Config().ConnConfig.Database, password)
	return u.String()
}

func TestTheClockSourceIsLookedAt(t *testing.T) {
	t.Parallel()
	for source, level := range map[string]checks.Level{
		"tsc": checks.OK, "kvm-clock": checks.OK, "hpet": checks.Warning, "jiffies": checks.Fault, "": checks.Skipped,
	} {
		folder := t.TempDir()
		if source != "" {
			if err := os.WriteFile(filepath.Join(folder, "current_clocksource"), []byte(source+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := look(t, checks.Edited(checks.Options{}, checks.Limits{ClockSources: folder}))
		want(t, got, "clock_source", level, source)
		want(t, got, "connect", checks.Skipped, "no database is named")
		want(t, got, "connect", checks.Skipped, "no Redis is named")
	}
}

func TestWhatWasMeasuredIsJudged(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct{ got, want checks.Level }{
		"near":                       {checks.JudgeLatency(ms, 2*ms, 30*time.Second), checks.OK},
		"above half a reservation":   {checks.JudgeLatency(150*ms, 150*ms, 30*time.Second), checks.Warning},
		"one of them above it":       {checks.JudgeLatency(ms, 150*ms, 30*time.Second), checks.OK},
		"a tenth of the TTL":         {checks.JudgeLatency(ms, 60*ms, 600*ms), checks.Warning},
		"a third of the TTL":         {checks.JudgeLatency(ms, 200*ms, 600*ms), checks.Fault},
		"above the longest reserved": {checks.JudgeLatency(ms, 6*time.Second, time.Hour), checks.Fault},
		"in step":                    {checks.JudgeClock(3*ms, 4*ms, 2*ms), checks.OK},
		"far":                        {checks.JudgeClock(-3*time.Second, -3*time.Second, 2*ms), checks.Warning},
		"far, by a slow network":     {checks.JudgeClock(time.Second, time.Second, time.Second), checks.OK},
		"stepped":                    {checks.JudgeClock(0, 300*ms, 2*ms), checks.Fault},
		"PostgreSQL 12":              {checks.PostgresVersion("PostgreSQL 12.1 on x", 120001), checks.Fault},
		"PostgreSQL 13":              {checks.PostgresVersion("PostgreSQL 13.1 on x", 130001), checks.OK},
		"CockroachDB":                {checks.PostgresVersion("CockroachDB CCL v25", 130000), checks.Warning},
		"YugabyteDB":                 {checks.PostgresVersion("PostgreSQL 15.2-YB-2.25 on x", 150002), checks.Warning},
		"Redis 5":                    {checks.RedisVersion(map[string]string{"redis_version": "5.0.14"}), checks.Fault},
		"Redis 6":                    {checks.RedisVersion(map[string]string{"redis_version": "6.0.16"}), checks.OK},
		"Valkey": {checks.RedisVersion(map[string]string{
			"redis_version":  "7.2.4",
			"valkey_version": "8.1.0",
		}), checks.OK},
		"Dragonfly": {checks.RedisVersion(map[string]string{
			"redis_version":     "7.4.0",
			"dragonfly_version": "df-1",
		}), checks.Warning},
		"another": {checks.RedisVersion(nil), checks.Warning},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

func TestServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	got := look(t, &checks.Options{
		HasDatabase: true, Database: "postgres://u:" + password + "@127.0.0.1:1/none",
		Redis: []string{"redis://u:" + password + "@127.0.0.1:1"},
	})
	want(t, got, "connect", checks.Fault, "mend the address, the network")
	want(t, got, "connect", checks.Fault, "mend the address, the user")
	want(t, got, "migrations", checks.Skipped, "look at these first: connect")
	want(t, got, "counters", checks.Skipped, "both servers")
}
