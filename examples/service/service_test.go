package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bundle is one database on which two processes of the service work. They have a Redis of their own, because the tests
// would share the names of the slots.
type bundle struct {
	owner               *pgxpool.Pool
	url, redisURL, role string // what a process of the service is started with
	a, b                *app
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ownerURL := testenv.EmptyDatabase(t)
	address, err := url.Parse(ownerURL)
	if err != nil {
		t.Fatal(err)
	}
	role := "service_" + strings.TrimPrefix(address.Path, "/")
	address.User = url.UserPassword(role, "secret")
	s := &bundle{
		owner: testenv.PoolOn(t, ownerURL),
		url:   address.String(), redisURL: testenv.OwnRedis(t).URL(), role: role,
	}
	s.exec(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
	t.Cleanup(func() { _, _ = s.owner.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	if err := migrate(t.Context(), ownerURL, role); err != nil {
		t.Fatal(err)
	}
	for _, process := range []**app{&s.a, &s.b} {
		a, err := open(t.Context(), s.url, s.redisURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.close)
		*process = a
	}
	key := fencepost.Key{"2026-11"}
	err = s.a.store.Do(t.Context(), "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		return s.a.invoices.In(tx).Insert(ctx, key, fencepost.Set{"cents": 4200})
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *bundle) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := s.owner.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// want compares what a query of one value finds.
func (s *bundle) want(t *testing.T, query, want string) {
	t.Helper()
	var got string
	if err := s.owner.QueryRow(t.Context(), `SELECT (`+query+`)::text`).Scan(&got); err != nil || got != want {
		t.Errorf("%s is %q, %v; want %q", query, got, err, want)
	}
}

// overtake claims a higher token for the lease's resource, as the next holder does. The lease does not notice.
func (s *bundle) overtake(t *testing.T, lease *fencepost.Lease) {
	t.Helper()
	next := lease.Claim()
	next.Token++
	conn, err := s.a.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := fence.Raise(t.Context(), conn.Conn(), next, nil); err != nil {
		t.Fatal(err)
	}
}

func (s *bundle) slot(t *testing.T) *fencepost.Lease {
	t.Helper()
	slot, err := s.a.store.AcquireAny(t.Context(), slots[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

func post(t *testing.T, a *app, path, key string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// A repeated request gets the first answer, from another process too. Invoice and event are written once.
func TestAPaymentIsMadeOnceForEachKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, a := range []*app{s.a, s.b} {
		if code, body := post(t, a, "/invoices/2026-11/payment", "k1"); code != 200 || !strings.Contains(body, "paid") {
			t.Errorf("%d %s", code, body)
		}
	}
	for path, want := range map[string]int{
		"/invoices/2026-11/payment k2": 422, // paid already
		"/invoices/2026-12/payment k1": 422, // the key is another request's
		"/invoices/2026-12/payment k3": 422,
		"/invoices/2026-12/payment ":   422,
	} {
		path, key, _ := strings.Cut(path, " ")
		if code, body := post(t, s.a, path, key); code != want {
			t.Errorf("%s with key %q: %d %s, want %d", path, key, code, body, want)
		}
	}
	s.want(t, `SELECT status FROM app.invoice`, "paid")
	s.want(t, `SELECT count(*) FROM app.outbox`, "1")
}

// The protected table refuses a write without a claim, from the service's own role and from its owner.
func TestAWriteWithoutAClaimIsRefused(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, pool := range []*pgxpool.Pool{s.a.pool, s.owner} {
		_, err := pool.Exec(t.Context(), `UPDATE app.invoice SET status = 'void'`)
		var missing *fencepost.NotEnteredError
		if !errors.As(fence.GuardError(t.Context(), err), &missing) || missing.Resource == "" {
			t.Errorf("%v", err)
		}
	}
	if _, err := s.a.pool.Exec(t.Context(), `TABLE fencepost.fence`); err == nil {
		t.Error("the service's role reads the fences")
	}
	s.want(t, `SELECT status FROM app.invoice`, "open")
}

// Two processes deliver each row once, and release their slots when they shut down.
func TestEachEventIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec(t, `INSERT INTO app.outbox (event) SELECT 'event ' || n FROM generate_series(1, 30) AS n`)
	sent := make(chan int64, 100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	for _, a := range []*app{s.a, s.b} {
		a.mail = func(_ context.Context, id int64, _ string) error { sent <- id; return nil }
		go func() { a.work(ctx, 4); ended <- struct{}{} }()
	}
	seen := make(map[int64]int)
	for range 30 {
		seen[<-sent]++
	}
	stop()
	<-ended
	<-ended
	if len(seen) != 30 || len(sent) > 0 {
		t.Errorf("%d rows were sent, then %d more", len(seen), len(sent))
	}
	s.want(t, `SELECT count(*) FROM app.outbox WHERE sent_at IS NOT NULL`, "30")
	for _, slot := range slots {
		lease, err := s.b.store.TryAcquire(t.Context(), slot, nil)
		if err != nil {
			t.Fatalf("%s was not given back: %v", slot, err)
		}
		_ = lease.Release(t.Context())
	}
}

// A worker that is overtaken writes nothing: its mark is refused, and the next holder of the slot sends the row again.
// The last step is the control: the same statement without the guard marks the row.
func TestAWorkerThatIsOvertakenWritesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec(t, `INSERT INTO app.outbox (event) VALUES ('paid')`)
	slot, sends := s.slot(t), 0
	s.a.mail = func(context.Context, int64, string) error {
		if sends++; sends == 1 {
			s.overtake(t, slot)
		}
		return nil
	}
	id, event, err := s.a.take(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.a.send(t.Context(), slot, id, event); !errors.Is(err, fencepost.ErrStale) {
		t.Errorf("the mark: %v", err)
	}
	s.want(t, `SELECT count(*) FROM app.outbox WHERE sent_at IS NULL AND slot = 'mail:0'`, "1")
	if _, _, err := s.a.take(t.Context(), slot); !errors.Is(err, fencepost.ErrLost) {
		t.Errorf("the next row: %v", err)
	}
	// The lease says so now, so no further mail leaves this worker.
	if err := s.a.send(t.Context(), slot, id, event); !errors.Is(err, fencepost.ErrLost) || sends != 1 {
		t.Errorf("sent %d times, %v", sends, err)
	}
	if err := slot.Release(t.Context()); !errors.Is(err, fencepost.ErrLost) {
		t.Errorf("release: %v", err)
	}

	if again, _, err := s.a.take(t.Context(), s.slot(t)); err != nil || again != id {
		t.Errorf("the next holder takes %d, %v; want %d", again, err, id)
	}
	s.want(t, `SELECT count(*) FROM app.outbox WHERE sent_at IS NULL`, "1")
	if _, err := s.a.pool.Exec(t.Context(), `UPDATE app.outbox SET sent_at = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	s.want(t, `SELECT count(*) FROM app.outbox WHERE sent_at IS NULL`, "0")
}

// The job of a day is done once, in one process at a time, and the next run continues where one stopped.
func TestTheNightlyJobIsDoneOnceForADay(t *testing.T) {
	t.Parallel()
	s := setup(t)
	day := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s.exec(t, `INSERT INTO app.report VALUES ('2026-11-30', 'open', 7)`) // an earlier run came that far
	lease, err := s.b.store.Acquire(t.Context(), "nightly", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.a.nightly(t.Context(), day); err != nil {
		t.Error(err)
	}
	s.want(t, `SELECT count(*) FROM app.report`, "1") // another process is at it
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*app{s.a, s.b} {
		if err := a.nightly(t.Context(), day); err != nil {
			t.Error(err)
		}
	}
	s.want(t, `SELECT string_agg(line || ' ' || value, ', ' ORDER BY line) FROM app.report`, "charged 0, open 7, paid 0")
}

// The rows of each customer are written under the customer's lease. A second run updates them.
func TestTheImporterWritesEachCustomersRows(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, file := range []string{"c1,a,10\nc1,b,20\nc2,a,30\n", "c1,a,11\n"} {
		if err := s.a.importCSV(t.Context(), strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, `SELECT string_agg(customer || id || cents, ' ' ORDER BY customer, id) FROM app.charge`, "c1a11 c1b20 c2a30")
	s.want(t, `SELECT count(*) FROM app.charge WHERE last_fencing_token = 0`, "0")
}

// The server ends when its context ends.
func TestTheServerShutsDown(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.a.serve(ctx, "127.0.0.1:0"); err != nil {
		t.Error(err)
	}
}

// Each command begins with the migrations, which are a no-op for the application's role.
func TestACommandRunsAsTheApplicationsRole(t *testing.T) {
	s := setup(t)
	t.Setenv("DATABASE_URL", s.url)
	t.Setenv("REDIS_URL", s.redisURL)
	t.Setenv("APP_ROLE", s.role)
	for _, command := range []string{"migrate", "nightly"} {
		if err := run(t.Context(), command); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	s.want(t, `SELECT count(*) FROM app.report`, "3")
	if err := run(t.Context(), "weekly"); err == nil {
		t.Error("an unknown command ran")
	}
}
