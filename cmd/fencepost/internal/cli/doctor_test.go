package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// doctor is what a script reads.
type doctor struct {
	Checks []struct {
		Server, Name, Level, Found, Do string
	}
	Faults, Warnings, Skipped int
	Error                     string
}

// plain replaces what differs between machines and versions.
func plain(got result) result {
	for _, r := range []struct{ pattern, by string }{
		{`PostgreSQL \d+[.\d]*( \([^)]*\))?`, "PostgreSQL VERSION"},
		{`(Redis|Valkey) \d+\.[.\d]*`, "Redis VERSION"},
		{`\d+ transaction ids and \d+ multixact ids`, "N transaction ids and M multixact ids"},
		{`the clock source is [\w-]+`, "the clock source is CLOCK"},
	} {
		got.out = regexp.MustCompile(r.pattern).ReplaceAllString(got.out, r.by)
	}
	return got
}

// doctored is the command line for a PostgreSQL and a Redis of the test's own, with what an operator and an application
// need.
func doctored(t *testing.T) []string {
	t.Helper()
	address := testenv.OwnPostgres(t, "-c", "fsync=on", "-c", "full_page_writes=on", "-c", "synchronous_commit=on").URL()
	pool := testenv.PoolOn(t, address)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE ROLE billing LOGIN PASSWORD 'hunter2'`, `CREATE ROLE night_shift LOGIN PASSWORD 'hunter2'`,
		`GRANT pg_monitor TO night_shift`, `CREATE SCHEMA shop`, `GRANT USAGE ON SCHEMA shop TO billing`,
		`SELECT fencepost.grant_application('billing')`, `SELECT fencepost.grant_operator('night_shift')`,
		`CREATE TABLE shop.invoice (id text PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
		`SELECT fencepost.protect('shop.invoice', 'billing', 'invoice:', '{id}')`,
		`GRANT SELECT, INSERT, UPDATE ON shop.invoice TO billing`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	_, rest, _ := strings.Cut(address, "@")
	redis := testenv.OwnRedis(t)
	client := testenv.RedisOn(t, redis.URL())
	for _, c := range [][2]string{{"appendonly", "yes"}, {"requirepass", "hunter2"}} {
		if err := client.ConfigSet(t.Context(), c[0], c[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		"doctor", "--namespace=billing", "--database=postgres://night_shift:hunter2@" + rest,
		"--redis=redis://:hunter2@" + redis.Addr(),
	}
}

// Warnings fail only if that is asked for, and a fault always does. No address is printed.
func TestDoctor(t *testing.T) {
	noServers(t)
	args := doctored(t)
	golden(t, "doctor", plain(run(t, args...)))
	strict := plain(run(t, append(args, "--strict")...))
	golden(t, "doctor_strict", result{status: strict.status, errOut: strict.errOut})
	got := run(t, append(args, "--json")...)
	found := decode[doctor](t, got)
	if got.status != 0 || found.Faults != 0 || found.Warnings == 0 || len(found.Checks) < 30 {
		t.Errorf("%+v", got)
	}
	golden(t, "doctor_json", plain(got))
	bad := plain(run(t, append(args, "--redis=redis://:hunter2@127.0.0.1:1", "--redis=redis://:hunter2@127.0.0.1:2")...))
	if bad.status != 78 || !strings.Contains(bad.errOut, "2 faults") {
		t.Errorf("%+v", bad)
	}
	for _, r := range []result{got, strict, bad} {
		if strings.Contains(r.out+r.errOut, "hunter2") {
			t.Errorf("a secret is shown: %+v", r)
		}
	}
}

// One server alone is looked at, and the other one skipped.
func TestDoctorOfOneServer(t *testing.T) {
	noServers(t)
	got := run(t, "doctor", "--advisory", "--database="+nowhere)
	if got.status != 78 || !strings.Contains(got.out, "fault    postgres  connect") || strings.Contains(got.out,
		"redis") ||
		strings.Contains(got.out+got.errOut, "hunter2") {
		t.Errorf("%+v", got)
	}
	found := decode[doctor](t, run(t, "doctor", "--json", "--redis="+testenv.RedisURL(t)))
	if found.Checks[1].Level != "skipped" || found.Checks[1].Found != "no database is named" {
		t.Errorf("%+v", found)
	}
}

// doctor --conformance --against is the command conformance by another name.
func TestDoctorConformance(t *testing.T) {
	noServers(t)
	url, redis := testenv.EmptyDatabase(t), testenv.RedisURL(t)
	one := run(t, "doctor", "--conformance", "--against="+url, "--against="+redis)
	other := run(t, "conformance", "--database="+url, "--redis="+redis)
	if one.status != 0 || one.out != other.out {
		t.Errorf("%+v\n%+v", one, other)
	}
	for _, line := range []string{
		"holds     promise   I1 ", "holds     promise   I2 ", "holds     promise   I3 ",
		"holds     promise   I7 ",
	} {
		if !strings.Contains(one.out, line) {
			t.Errorf("%q is not printed: %s", line, one.out)
		}
	}
	if got := run(t, "doctor", "--conformance", "--against="+nowhere); got.status != 78 || !strings.Contains(got.out,
		"not known promise   I1") {
		t.Errorf("%+v", got)
	}
	for name, args := range map[string][]string{
		"against what":      {"--conformance"},
		"against, no check": {"--against=" + url},
		"two of a kind":     {"--conformance", "--against=" + url, "--against=" + url},
		"no address":        {"--conformance", "--against=hunter2"},
		"nothing":           {},
		"no TTL":            {"--advisory", "--database=" + url, "--ttl=1ms"},
		"two servers":       {"--redis=redis://a", "--redis=redis://b"},
	} {
		if got := run(t, append([]string{"doctor"}, args...)...); got.status != 2 || strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
