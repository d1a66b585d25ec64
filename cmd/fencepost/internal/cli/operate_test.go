//go:build unix

package cli_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// own returns the texts of a place that a golden file cannot contain.
func (p *place) own() []string {
	config, err := pgx.ParseConfig(p.database)
	if err != nil {
		p.t.Fatal(err)
	}
	return []string{p.namespace, "NS", `"` + config.User + `"`, `"USER"`, ", " + config.User +
		",", ", USER,", config.Database, "DB"}
}

// golden runs a command on the place and compares its output, which must not contain a nonce.
func (p *place) golden(name, command string, secrets ...*fencepost.Lease) result {
	p.t.Helper()
	got := run(p.t, p.with(command)...)
	golden(p.t, name, got, p.own()...)
	for _, l := range secrets {
		hex := l.Claim().Nonce.Hex()
		uuid := strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
		if strings.Contains(got.out+got.errOut, hex) || strings.Contains(got.out+got.errOut, uuid) {
			p.t.Errorf("%s: the nonce is printed", name)
		}
	}
	return got
}

// wait starts a waiter for a lease, and returns once it is in the queue.
func (p *place) wait(resource, label string) (granted <-chan *fencepost.Lease) {
	p.t.Helper()
	c := make(chan *fencepost.Lease, 1)
	ctx, cancel := context.WithCancel(p.t.Context())
	go func() {
		l, _ := p.store(label).Acquire(ctx, resource, nil)
		c <- l
		close(c) // the test may have taken it
	}()
	p.t.Cleanup(func() {
		cancel()
		if l := <-c; l != nil {
			_ = l.Release(context.Background())
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for p.rdb.ZCard(p.t.Context(), "fencepost:"+p.namespace+":{"+resource+"}:queue").Val() == 0 {
		if time.Now().After(deadline) {
			p.t.Fatal("nobody waits")
		}
		<-time.After(5 * time.Millisecond)
	}
	return c
}

// overtake raises a fence without Redis, as a worker of another Redis would.
func (p *place) overtake(resource string, tok token.Token, label string) {
	p.t.Helper()
	conn, err := p.pool.Acquire(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Release()
	c := fence.Claim{Resource: p.namespace + ":" + resource, Token: tok, Nonce: token.NewNonce()}
	if err := fence.Raise(p.t.Context(), conn.Conn(), c, &fence.RaiseOptions{Label: label}); err != nil {
		p.t.Fatal(err)
	}
}

// enter opens a transaction under a lease until the test ends. Its last statement contains a nonce.
func (p *place) enter(l *fencepost.Lease) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.database)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	c := l.Claim()
	if _, err := conn.Exec(p.t.Context(),
		`SET application_name = 'psql'; BEGIN; SELECT fencepost.enter('`+c.Resource+`', `+
			c.Token.String()+`, '`+c.Nonce.Hex()+`')`); err != nil {
		p.t.Fatal(err)
	}
}

func TestLeaseLsAndShow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("lease_ls_none", "lease ls")
	p.golden("lease_show_none", "lease show r")
	a := p.acquire("invoice:1", "host-a/1")
	b := p.acquire("invoice:2", "host-b/2")
	p.overtake("invoice:2", 9, "host-c/3")
	p.wait("invoice:1", "host-d/4")
	p.enter(a)
	p.golden("lease_ls", "lease ls", a, b)
	p.golden("lease_ls_json", "lease ls --json", a, b)
	p.golden("lease_ls_limit", "lease ls --limit 1")
	p.golden("lease_show", "lease show invoice:1", a)
	p.golden("lease_show_json", "lease show invoice:1 --json", a)
	p.golden("fence_ls", "fence ls")
	for _, usage := range []string{"lease ls --limit 0", "lease show", "lease", "lease release", "fence ls --limit 0"} {
		if got := run(t, p.with(usage)...); got.status != 2 {
			t.Errorf("%s: %+v", usage, got)
		}
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("why_nobody", "why r --token 7")
	l := p.acquire("r", "host-a/1")
	p.golden("why_current", "why r", l)
	p.golden("why_same", "why r --token 1")
	p.golden("why_above", "why r --token 5")
	p.overtake("r", 9, "host-b/2")
	p.golden("why_overtaken", "why r --token 1", l)
	p.golden("why_overtaken_json", "why r --token 1 --json", l)
	if got := run(t, p.with("why r --token x")...); got.status != 2 {
		t.Errorf("%+v", got)
	}
}

// The holder's writes are refused before the lease is free, and the waiter gets it.
func TestLeaseHandoverRefusesTheOldHolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("r", "host-a/1")
	p.golden("handover_nobody", "lease handover r --reason ticket-17")
	granted := p.wait("r", "host-b/2")
	p.golden("handover", "lease handover r --reason ticket-17", l)
	next := <-granted
	if next == nil || next.Token() < 3 { // 2 is the fence's, raised by the command
		t.Fatalf("the waiter got %+v", next)
	}
	defer func() { _ = next.Release(context.Background()) }()
	err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error { return fence.Enter(t.Context(), tx, l.Claim()) })
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old holder may write: %v", err)
	}
}

// The control: if a lease is freed by hand alone, its holder keeps a valid claim.
func TestLeaseHandoverRefusesTheOldHolderControl_DeletingTheKeyDoesNot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("r", "host-a/1")
	p.rdb.Del(t.Context(), "fencepost:"+p.namespace+":{r}:lease")
	err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error { return fence.Enter(t.Context(), tx, l.Claim()) })
	if err != nil {
		t.Errorf("the old holder is refused: the test shows nothing: %v", err)
	}
}

func TestLeaseRelease(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("release_free", "lease release r --force")
	l := p.acquire("r", "host-a/1")
	p.golden("release_refused", "lease release r")
	p.golden("release_refused_json", "lease release r --json")
	p.golden("release_forced", "lease release r --force --reason ticket-17", l)
	p.golden("release_forced_fence", "fence show r")
	if got := p.acquire("r", "host-b/2"); got.Token() != 3 {
		t.Errorf("the next token is %d", got.Token())
	}
	// A lease that was overtaken may be freed without force, because it no longer protects anything.
	p.overtake("r", 9, "host-c/3")
	p.golden("release_overtaken", "lease release r")
	p.rdb.Set(t.Context(), "fencepost:"+p.namespace+":{r}:lease", "hello", time.Minute)
	p.golden("release_foreign", "lease release r --force")
}

// A transaction that is open under the lease would be refused at its end, or commit after the lease was freed: nothing
// is done, and the lease stays.
func TestLeaseReleaseWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("r", "host-a/1")
	p.enter(l)
	p.golden("release_busy", "lease release r --force --wait 300ms", l)
	if err := l.Renew(t.Context(), 30*time.Second); err != nil {
		t.Errorf("the lease is gone: %v", err)
	}
	if f := run(t, p.with("fence show r")...); !strings.Contains(f.out, "token 1,") {
		t.Errorf("%+v", f)
	}
}

func TestLeasesOverAdvisoryLocks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s, err := fencepost.NewAdvisory(p.pool, &fencepost.Options{Namespace: p.namespace, Label: "host-a/1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release(context.Background()) }()
	p.golden("advisory_ls", "lease ls --advisory", l)
	p.golden("advisory_show", "lease show r --advisory", l)
	p.golden("advisory_release", "lease release r --advisory --force", l)
	p.golden("advisory_why", "why r --token 1 --advisory", l)
	p.golden("advisory_reseed", "reseed --advisory")
}

func TestFencesAreReadByPages(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("fence_ls_none", "fence ls")
	for _, r := range []string{"a", "b", "c"} {
		p.overtake(r, 1, "host-a/1")
	}
	p.golden("fence_ls_page", "fence ls --limit 2")
	p.golden("fence_ls_rest", "fence ls --limit 2 --after b --json")
	p.golden("fence_show_json", "fence show b --json")
	p.golden("fence_show_none", "fence show x")
}

// Keys of one moment, as a restore or one transaction can leave them, are split between two pages. The control: without
// the last key's name the next page leaves out the rest of that moment.
func TestPagesOfTheLedgerLoseNoKeyOfOneMoment(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, key := range []string{"k1", "k2", "k3"} {
		if got := run(t, p.with("run -r r --once "+key+" --", "true")...); got.status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	const moment = "2026-11-30T03:00:00.000001Z"
	_, err := p.pool.Exec(t.Context(), `UPDATE fencepost.ledger SET done_at = $1::text::timestamptz`, moment)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[string]string{"": "", " --after k1": `"k2"`, " --after k2": `"k3"`, " --after k3": ""} {
		got := run(t, p.with("ledger ls --json --limit 1 --before "+moment+after)...)
		if got.status != 0 || want == "" && strings.Contains(got.out, `"key"`) || !strings.Contains(got.out, want) {
			t.Errorf("the page%s: %+v, want %q", after, got, want)
		}
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.golden("ledger_ls_none", "ledger ls")
	p.golden("ledger_show_none", "ledger show k1")
	for _, key := range []string{"k1", "k2"} {
		if got := run(t, p.with("run -r r --once "+key+" --", "true")...); got.status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	p.golden("ledger_ls", "ledger ls")
	p.golden("ledger_ls_json", "ledger ls --json --limit 1")
	p.golden("ledger_show", "ledger show k1")
	p.golden("ledger_show_json", "ledger show k1 --json")
	p.golden("ledger_purge_young", "ledger purge --age 1h")
	p.golden("ledger_purge", "ledger purge --age 24h")
	_, err := p.pool.Exec(t.Context(),
		`UPDATE fencepost.ledger SET done_at = done_at - interval '2 days' WHERE key = 'k1'`)
	if err != nil {
		t.Fatal(err)
	}
	p.golden("ledger_purge_json", "ledger purge --age 24h --json")
}

// After Redis lost its data, the command raises the counters above the fences, and the next grant is not refused.
func TestReseed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, r := range []string{"a", "b", "c"} {
		p.overtake(r, 7, "host-a/1")
	}
	p.rdb.Set(t.Context(), "fencepost:"+p.namespace+":{b}:token", "9", time.Hour)
	p.golden("reseed_dry", "reseed --dry-run")
	p.golden("reseed", "reseed")
	p.golden("reseed_again", "reseed --json")
	for r, want := range map[string]token.Token{"a": 8, "b": 10} {
		if l := p.acquire(r, "host-a/1"); l.Token() != want {
			t.Errorf("%s: the next token is %d, want %d", r, l.Token(), want)
		}
	}
}

// A role with an operator's rights sees everything, and an application's role sees nothing.
func TestOperatorsNeedOneGrant(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.overtake("r", 7, "host-a/1")
	as := func(grant string) string {
		role := "op_" + strings.ToLower(strings.ReplaceAll(token.NewNonce().Hex()[:12], "-", "_"))
		if _, err := p.pool.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN PASSWORD 'hunter2'; `+
			strings.ReplaceAll(grant, "ROLE", role)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = p.pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		})
		u, err := url.Parse(p.database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "hunter2")
		return u.String()
	}
	operator := as(`SELECT fencepost.grant_operator('ROLE')`)
	for _, command := range []string{"fence ls", "fence show r", "ledger ls", "ledger show k"} {
		got := run(t, append(strings.Fields(command), "--database="+operator, "--namespace="+p.namespace)...)
		if got.status > 1 || strings.Contains(got.errOut, "permission") {
			t.Errorf("%s: %+v", command, got)
		}
	}
	got := run(t, "fence", "ls", "--database="+as(`SELECT fencepost.grant_application('ROLE')`),
		"--namespace="+p.namespace)
	if got.status != 69 || !strings.Contains(got.errOut, "fencepost.grant_operator") ||
		strings.Contains(got.errOut, "hunter2") {
		t.Errorf("%+v", got)
	}
	got = run(t, "fence", "ls", "--database="+testenv.EmptyDatabase(t))
	if got.status != 69 || !strings.Contains(got.errOut, "fencepost migrate up") {
		t.Errorf("%+v", got)
	}
}
