package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// setupSQL is setup with the same database open through database/sql as well.
func setupSQL(t *testing.T) (*sql.DB, *pgxpool.Pool) {
	t.Helper()
	pool := fencetest.Setup(t)
	return openSQL(t, pool.Config().ConnString()), pool
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func updateSQL(ctx context.Context, db fence.SQLDB, tok token.Token, id int, value any) error {
	return fence.UpdateSQL(ctx, db, rows, tok, fence.Key{id}, fence.Set{"value": value})
}

// guardedSQL writes a value in a transaction under a claim.
func guardedSQL(ctx context.Context, db *sql.DB, c fence.Claim, id int, value string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fence.EnterSQL(ctx, tx, c); err != nil {
		return err
	}
	_, err = tx.ExecContext(
		ctx,
		`UPDATE app.item SET value = $2, last_fencing_token = $3 WHERE id = $1`,
		id,
		value,
		int64(c.Token),
	)
	if err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit())
}

// I3 over database/sql: once the claim of 2 has committed, a transaction under 1 writes nothing. The control
// leaves the guard out.
func TestInvariant3_NothingIsWrittenUnderAnOvertakenClaimOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	a := fencetest.ClaimOf("r", 1)
	if err := fence.RaiseSQL(t.Context(), db, a, &fence.RaiseOptions{Label: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := guardedSQL(t.Context(), db, a, 1, "A"); err != nil {
		t.Fatal(err)
	}
	if err := fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 2), nil); err != nil {
		t.Fatal(err)
	}
	before := fencetest.Read(t, pool, 1)
	err := guardedSQL(t.Context(), db, a, 1, "A again")
	fencetest.WantStale(t, err, 1, 2)
	var stale *fence.StaleError
	if errors.As(err, &stale) && (stale.Resource != "r" || stale.Row) {
		t.Errorf("got %+v", stale)
	}
	if after := fencetest.Read(t, pool, 1); after != before {
		t.Errorf("refused, and the row went from %+v to %+v", before, after)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE app.item SET value = 'A again' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	if after := fencetest.Read(t, pool, 1); after.Value != "A again" {
		t.Errorf("the control wrote nothing: %+v", after)
	}
}

// Even if the guard's error is ignored, PostgreSQL has aborted the transaction, and its commit returns an error that
// claims nothing else.
func TestAnOverlookedGuardErrorCommitsNothingOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, fence.EnterSQL(t.Context(), tx, fencetest.ClaimOf("r", 1)), 1, 2)
	_, _ = tx.ExecContext(t.Context(), `UPDATE app.item SET value = 'A' WHERE id = 1`)
	err = fence.CommitError(t.Context(), tx.Commit())
	if err == nil || errors.Is(err, fence.ErrOutcomeUnknown) || errors.Is(err, fence.ErrUnavailable) {
		t.Errorf("commit gave %v", err)
	}
	if again := fence.CommitError(t.Context(), tx.Commit()); again == nil || errors.Is(again, fence.ErrOutcomeUnknown) {
		t.Errorf("a second commit gave %v", again)
	}
	if r := fencetest.Read(t, pool, 1); r.Value != "" {
		t.Errorf("the row is %+v", r)
	}
}

// A claim waits for a guarded transaction of database/sql as it does for any other.
func TestAClaimWaitsForAGuardOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	a := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fence.EnterSQL(t.Context(), tx, a); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() { claimed <- fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 2), nil) }()
	untilWaiters(t, pool, 1)
	if _, err := tx.ExecContext(t.Context(), `UPDATE app.item SET value = 'A' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	if err := fence.CommitError(t.Context(), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

func TestTheOutcomesOfAClaimOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	c := fencetest.ClaimOf("r", 5)
	for range 2 { // the second recognises itself
		if err := fence.RaiseSQL(t.Context(), db, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	fencetest.WantStale(t, fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 4), nil), 4, 5)
	fencetest.WantStale(t, fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 5), nil), 5, 5)
	fencetest.WantErr(t, fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", token.Max), nil), fence.ErrJump)
	fencetest.WantErr(t, fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("", 1), nil), fence.ErrInvalid)
	fencetest.WantErr(
		t,
		fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 6), &fence.RaiseOptions{Label: "\x00"}),
		fence.ErrInvalid,
	)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := fence.RaiseSQL(t.Context(), conn, fencetest.ClaimOf("r", 6), nil); err != nil {
		t.Error(err)
	}
	// A guard makes it wait: it ends with its context, and nothing has been claimed.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := fence.Enter(t.Context(), tx, claimedNow(t, pool, "r")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = fence.RaiseSQL(ctx, db, fencetest.ClaimOf("r", 7), nil)
	fencetest.WantErr(t, err, fence.ErrUnavailable, context.DeadlineExceeded)
	if errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("COMMIT was not sent, and yet: %v", err)
	}
}

// claimedNow returns the claim that the fence of a resource carries. default_transaction_read_only is an operator's
// switch, and no claim overrides it.
func TestAClaimRespectsAReadOnlyDefault(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	u, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_transaction_read_only", "on")
	u.RawQuery = query.Encode()
	readOnly := testenv.PoolOn(t, u.String())
	for name, err := range map[string]error{
		"database/sql": fence.RaiseSQL(t.Context(), openSQL(t, u.String()), fencetest.ClaimOf("r", 1), nil),
		"pgx":          fencetest.Raise(t.Context(), readOnly, fencetest.ClaimOf("r", 2)),
	} {
		var server *pgconn.PgError
		if !errors.Is(err, fence.ErrUnavailable) || !errors.As(err, &server) || server.Code != "25006" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func claimedNow(t *testing.T, pool *pgxpool.Pool, resource string) fence.Claim {
	t.Helper()
	c := fence.Claim{Resource: resource}
	var nonce string
	err := pool.QueryRow(t.Context(),
		`SELECT token, replace(nonce::text, '-', '') FROM fencepost.fence WHERE resource = $1`, resource).
		Scan(&c.Token, &nonce)
	if err != nil {
		t.Fatal(err)
	}
	if c.Nonce, err = token.ParseNonce(nonce); err != nil {
		t.Fatal(err)
	}
	return c
}

// C18, C06 e and I9 over database/sql: each outcome of a bare write is a separate error.
func TestCase18_TheOutcomesOfABareWriteOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	fencetest.Exec(t, pool, `
		CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER swallow BEFORE UPDATE ON app.item FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION app.swallow()`)
	ctx := t.Context()
	if err := updateSQL(ctx, db, 9, 1, "B"); err != nil {
		t.Fatal(err)
	}
	before := fencetest.Read(t, pool, 1)
	err := updateSQL(ctx, db, 5, 1, "A")
	fencetest.WantStale(t, err, 5, 9)
	var stale *fence.StaleError
	if errors.As(err, &stale) && !stale.Row {
		t.Error("the row refused, and the error says the fence did")
	}
	fencetest.WantErr(t, updateSQL(ctx, db, 9, 1, "B again"), fence.ErrTokenSpent)
	fencetest.WantErr(t, updateSQL(ctx, db, 9, 99, "x"), fence.ErrNotFound)
	fencetest.WantErr(t, updateSQL(ctx, db, 9, 3, "x"), fence.ErrRefused)
	for _, bad := range []token.Token{0, -1} {
		fencetest.WantErr(t, updateSQL(ctx, db, bad, 1, "x"), fence.ErrInvalid)
	}
	for name, value := range map[string]any{"not null": nil, "not encodable": make(chan int)} {
		err := updateSQL(ctx, db, 10, 1, value)
		for _, ours := range []error{
			fence.ErrUnavailable, fence.ErrOutcomeUnknown, fence.ErrStale,
			fence.ErrNotFound, fence.ErrInvalid,
		} {
			if err == nil || errors.Is(err, ours) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
	if after := fencetest.Read(t, pool, 1); after != before {
		t.Errorf("refused writes changed the row from %+v to %+v", before, after)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

func TestUpdateSQLInACallersTransactionAndOnAConnection(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := updateSQL(t.Context(), tx, 5, 1, "x"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := fencetest.Read(t, pool, 1); r.Token != 0 {
		t.Errorf("the row is %+v", r)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := updateSQL(t.Context(), conn, 5, 1, "x"); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	fencetest.WantErr(t, updateSQL(t.Context(), conn, 6, 1, "x"), fence.ErrUnavailable)
}

// Either the reply is lost and the write was carried out, or the write was lost on its way. The writer cannot know
// which, and neither write is sent twice.
func TestALostReplyToAnUpdateOverDatabaseSQLIsUnknown(t *testing.T) {
	t.Parallel()
	for _, carriedOut := range []bool{true, false} {
		t.Run(fmt.Sprintf("carried out %v", carriedOut), func(t *testing.T) {
			t.Parallel()
			_, pool := setupSQL(t)
			proxy, db := proxied(t, pool)
			drop := proxy.DropNextRequest
			want := fencetest.Row{}
			if carriedOut {
				drop = proxy.DropNextReply
				want = fencetest.Row{Value: "a value of its own", Token: 5}
			}
			dropped := drop(faults.Containing("a value of its own"))
			err := updateSQL(t.Context(), db, 5, 1, "a value of its own")
			fencetest.WantErr(t, err, fence.ErrOutcomeUnknown)
			<-dropped
			if r := fencetest.Read(t, pool, 1); r.Value != want.Value || r.Token != want.Token {
				t.Errorf("the row is %+v, want %+v", r, want)
			}
		})
	}
}

// Inside a transaction nothing commits if the connection is gone, so the outcome is known.
func TestAConnectionThatEndsBeforeCommitOverDatabaseSQLIsNoOutcome(t *testing.T) {
	t.Parallel()
	_, pool := setupSQL(t)
	proxy, db := proxied(t, pool)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	dropped := proxy.DropNextReply(faults.Containing("a value of its own"))
	err = updateSQL(t.Context(), tx, 5, 1, "a value of its own")
	fencetest.WantErr(t, err, fence.ErrUnavailable)
	if errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	<-dropped
	_ = tx.Rollback()
	if r := fencetest.Read(t, pool, 1); r.Value != "" {
		t.Errorf("the row is %+v", r)
	}
}

func TestALostReplyToCommitOverDatabaseSQLIsUnknown(t *testing.T) {
	t.Parallel()
	_, pool := setupSQL(t)
	proxy, db := proxied(t, pool)
	dropped := proxy.DropNextReply(faults.Containing("commit"))
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	fencetest.WantErr(t, guardedSQL(t.Context(), db, c, 1, "A"), fence.ErrOutcomeUnknown)
	<-dropped
	if r := fencetest.Read(t, pool, 1); r.Value != "A" {
		t.Errorf("the row is %+v", r)
	}
}

func proxied(t *testing.T, pool *pgxpool.Pool) (*faults.Proxy, *sql.DB) {
	t.Helper()
	url := pool.Config().ConnString()
	config := pool.Config().ConnConfig
	proxy := faults.NewProxy(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	return proxy, openSQL(t, proxy.URL(t, url))
}

// A driver that reports a bad connection after it has sent something (lib/pq does) makes database/sql send it again on
// a pool. UpdateSQL keeps to one connection. The control shows what a plain pool does.
func TestABadConnectionIsUnknownAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	bad := &badDriver{}
	db := sql.OpenDB(bad)
	t.Cleanup(func() { _ = db.Close() })
	fencetest.WantErr(t, updateSQL(t.Context(), db, 5, 1, "x"), fence.ErrOutcomeUnknown, driver.ErrBadConn)
	if bad.sent != 1 {
		t.Errorf("the UPDATE was sent %d times", bad.sent)
	}
	bad.sent = 0
	if _, err := db.ExecContext(t.Context(), `UPDATE`); err == nil || bad.sent < 2 {
		t.Errorf("the control was sent %d times, %v", bad.sent, err)
	}
}

// badDriver connects, counts the statements that are sent, and reports the connection as bad.
type badDriver struct{ sent int }

func (b *badDriver) Connect(context.Context) (driver.Conn, error) { return &badConn{b: b}, nil }

func (b *badDriver) Driver() driver.Driver { return nil }

type badConn struct {
	driver.Conn
	b *badDriver
}

func (c *badConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.b.sent++
	return nil, driver.ErrBadConn
}

func (c *badConn) Close() error { return nil }

func TestAnUnreachableServerIsUnavailableOverDatabaseSQL(t *testing.T) {
	t.Parallel()
	gone := openSQL(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	db, _ := setupSQL(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"update":       updateSQL(t.Context(), gone, 5, 1, "x"),
		"claim":        fence.RaiseSQL(t.Context(), gone, fencetest.ClaimOf("r", 1), nil),
		"ended update": updateSQL(ended, db, 5, 1, "x"),
		"ended claim":  fence.RaiseSQL(ended, db, fencetest.ClaimOf("r", 1), nil),
	} {
		if !errors.Is(err, fence.ErrUnavailable) || errors.Is(err, fence.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The SQLSTATE is read from any driver's error that has it. The numbers come from the DETAIL, if the driver keeps it.
func TestOutcomesAreReadOffAnyDriversError(t *testing.T) {
	t.Parallel()
	detailed := &otherError{Code: "ZF001", Detail: `{"resource": "r", "token": "5", "current": "9"}`}
	fencetest.WantStale(t, fence.GuardError(t.Context(), fmt.Errorf("orm: %w", detailed)), 5, 9)
	fencetest.WantErr(t, fence.GuardError(t.Context(), bareError("ZF001")), fence.ErrStale)
	fencetest.WantErr(t, fence.GuardError(t.Context(), bareError("57P01")), fence.ErrUnavailable)
	fencetest.WantErr(t, fence.CommitError(t.Context(), driver.ErrBadConn), fence.ErrOutcomeUnknown)
	if err := fence.CommitError(t.Context(), sql.ErrTxDone); err == nil || errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	for code, want := range map[string]bool{"40001": true, "40P01": true, "23505": false} {
		if fence.SafeToRetry(bareError(code)) != want || fence.SafeToRetry(&otherError{Code: code}) != want {
			t.Errorf("SafeToRetry of %s is not %v", code, want)
		}
	}
}

type otherError struct{ Code, Detail string }

func (e *otherError) Error() string { return "other: " + e.Code }

func (e *otherError) SQLState() string { return e.Code }

type bareError string

func (e bareError) Error() string { return "bare: " + string(e) }

func (e bareError) SQLState() string { return string(e) }

// EnterSQL accepts a transaction, but neither a pool nor a connection.
var (
	_ fence.SQLTx       = (*sql.Tx)(nil)
	_ fence.SQLDB       = (*sql.DB)(nil)
	_ fence.SQLDB       = (*sql.Conn)(nil)
	_ fence.SQLDB       = (*sql.Tx)(nil)
	_ fence.SQLBeginner = (*sql.DB)(nil)
	_ fence.SQLBeginner = (*sql.Conn)(nil)
)

func TestAGuardNeedsATransaction(t *testing.T) {
	t.Parallel()
	for _, commitsByItself := range []any{(*sql.DB)(nil), (*sql.Conn)(nil)} {
		if _, ok := commitsByItself.(fence.SQLTx); ok {
			t.Errorf("%T passes for a transaction", commitsByItself)
		}
	}
}

// C37: a connection of database/sql that cannot be used is not given back to its pool. A connection that met an
// ordinary error is given back, and so is one to a primary on which an operator has stopped all writes.
func TestCase37_DiscardSQLClosesOnlyWhatIsOfNoUse(t *testing.T) {
	t.Parallel()
	db, _ := setupSQL(t)
	db.SetMaxOpenConns(1)
	backend := func(err error) (pid int) {
		conn, connErr := db.Conn(t.Context())
		if connErr == nil {
			connErr = conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid)
		}
		if connErr != nil {
			t.Fatal(connErr)
		}
		fence.DiscardSQL(conn, err)
		_ = conn.Close() // an error if it was discarded
		return pid
	}
	for code, kept := range map[string]bool{"23505": true, "25006": true, "57P01": false, "08006": false} {
		before := backend(&pgconn.PgError{Code: code})
		if after := backend(nil); (after == before) != kept {
			t.Errorf("SQLSTATE %s: backend %d, then %d", code, before, after)
		}
	}
}
