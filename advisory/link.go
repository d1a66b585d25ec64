package advisory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/encoding"
)

// link is the connection of a session. One goroutine uses it at a time, except for interrupt and sever.
//
// It was taken from the pool for good, so the pool's hooks have seen it and the pool's limits cannot retire it. It is
// driven without pgx: deadlines are set on the socket, nothing is prepared, and notifications go to the session.
type link struct {
	raw    net.Conn
	pg     *pgconn.PgConn
	conn   *pgx.Conn // the connection pg was taken from; tracers need it
	tracer pgx.QueryTracer
	within time.Duration // how long a reply may take

	// The session's goroutine alone uses these.
	table int64 // the size of the server's lock table; 0 if unknown
	locks int64 // how many locks this session has, as far as the server answered
}

// channel carries the key of each released lock, in decimal.
const channel = "fencepost_advisory"

// openLink opens the connection, and refuses one that does not lead directly to a primary.
func openLink(ctx context.Context, pool *pgxpool.Pool, opts *Options, told func(payload string)) (*link, error) {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if problem := encoding.Problem(pooled.Conn().PgConn()); problem != "" {
		pooled.Release()
		return nil, invalidf("%s", problem)
	}
	conn := pooled.Hijack()
	k, err := newLink(conn.PgConn(), told)
	if err != nil {
		return nil, err
	}
	k.conn, k.tracer = conn, conn.Config().Tracer
	if deadline, ok := ctx.Deadline(); ok {
		k.within = time.Until(deadline)
	}
	stop := context.AfterFunc(ctx, k.sever)
	err = k.settle(opts)
	if !stop() || err != nil {
		k.sever()
		return nil, errors.Join(err, ctx.Err())
	}
	k.within = opts.AnswerWithin
	return k, nil
}

// newLink makes a link from a connection that nobody else uses any longer.
func newLink(conn *pgconn.PgConn, told func(payload string)) (*link, error) {
	hijacked, err := conn.Hijack()
	if err != nil {
		_ = conn.Conn().Close() // the pool no longer owns it
		return nil, err
	}
	config := hijacked.Config.Copy()
	config.OnNotice = nil
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if n.Channel == channel {
			told(n.Payload)
		}
	}
	// No statement here waits in the server, so there is never anything to cancel, and nothing to dial for.
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	hijacked.Config = config
	pg, err := pgconn.Construct(hijacked)
	if err != nil {
		_ = hijacked.Conn.Close()
		return nil, err
	}
	return &link{raw: hijacked.Conn, pg: pg}, nil
}

// settleSQL changes settings only on a direct connection: on a pooler's connection they would affect other clients.
//
// idle_session_timeout exists from PostgreSQL 14 on; the TCP settings have no effect on Unix sockets.
const settleSQL = `
SELECT pg_catalog.pg_backend_pid()::text, pg_catalog.pg_is_in_recovery()::text,
       (SELECT pg_catalog.count(pg_catalog.set_config(s.name, v.value, false))
          FROM (VALUES ('idle_session_timeout', $2::text), ('application_name', $3::text),
                       ('tcp_keepalives_idle', $4::text), ('tcp_keepalives_interval', $5::text),
                       ('tcp_keepalives_count', '3'),
                       ('tcp_user_timeout', $2::text),
                       ('statement_timeout', '0'), ('lock_timeout', '0'),
                       ('synchronous_commit', 'off')) AS v (name, value)
          JOIN pg_catalog.pg_settings AS s USING (name)
         WHERE pg_catalog.pg_backend_pid() = $1::bigint)::text,
       (pg_catalog.current_setting('max_locks_per_transaction', true)::bigint *
         (pg_catalog.current_setting('max_connections', true)::bigint
          + pg_catalog.current_setting('max_prepared_transactions', true)::bigint))::text`

// settle checks where the connection leads, and applies the settings that the session needs.
func (k *link) settle(opts *Options) error {
	ttl, pid := milliseconds(opts.TTL), strconv.FormatUint(uint64(k.pg.PID()), 10)
	row, err := k.ask(settleSQL, pid, ttl, opts.Label, seconds(opts.TTL/2), seconds(opts.TTL/6))
	switch {
	case err != nil:
		return err
	case row[0] != pid:
		return invalidf(
			"there is a pooler (PgBouncer, for example) between this process and PostgreSQL: "+
				"session %s answered for %s. Session-level advisory locks need a direct connection, "+
				"so PgBouncer's session mode does not work either: "+
				"pass a pool that connects directly to PostgreSQL, or use transaction-level locks",
			row[0],
			pid,
		)
	case row[1] == "true":
		return errStandby
	}
	k.table, _ = strconv.ParseInt(row[3], 10, 64) // a server without these settings has no such lock table
	return nil
}

var errStandby = errors.New(
	"the server is a standby: advisory locks on a standby do not exclude sessions on the primary",
)

// milliseconds and seconds round up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

const (
	tryLockSQL = `SELECT pg_catalog.pg_try_advisory_lock($1::bigint)::text, ''`

	// tryLockNamingSQL also names the holder, as far as it can be determined.
	tryLockNamingSQL = `
SELECT got::text, CASE WHEN NOT got THEN
    (SELECT a.application_name FROM pg_catalog.pg_locks AS k JOIN pg_catalog.pg_stat_activity AS a ON a.pid = k.pid
      WHERE k.locktype = 'advisory' AND k.classid = $2::oid AND k.objid = $3::oid AND k.objsubid = 1 AND k.granted
        AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
      LIMIT 1) END
  FROM (SELECT pg_catalog.pg_try_advisory_lock($1::bigint) AS got OFFSET 0) AS asked`

	unlockSQL = `SELECT pg_catalog.pg_advisory_unlock($1::bigint)::text`

	// unlockTellingSQL also notifies the waiters: the message goes out when the statement commits, and the lock is free
	// by then.
	unlockTellingSQL = `SELECT pg_catalog.pg_advisory_unlock($1::bigint)::text,
       pg_catalog.pg_notify('` + channel + `', $1::text)::text`
)

// tryLock tries a lock without waiting for it.
func (k *link) tryLock(key int64, naming bool) (got bool, holder string, err error) {
	sql, args := tryLockSQL, []string{strconv.FormatInt(key, 10)}
	if naming {
		classid, objid := halves(key)
		sql, args = tryLockNamingSQL, append(args, classid, objid)
	}
	row, err := k.ask(sql, args...)
	if err != nil {
		return false, "", err
	}
	if got = row[0] == "true"; got {
		k.locks++
	}
	return got, row[1], nil
}

// unlock releases a lock. It is an error if the lock was not held.
func (k *link) unlock(key int64) error {
	row, err := k.giveBack(key)
	switch {
	case err != nil:
		return err
	case row[0] != "true":
		return fmt.Errorf("advisory lock %d was not held by its session", key)
	}
	k.locks--
	return nil
}

// forget releases a lock that may not have been acquired.
func (k *link) forget(key int64) error {
	_, err := k.giveBack(key)
	return err
}

// giveBack unlocks, and notifies the waiters if PostgreSQL can. If it cannot, for example because its NOTIFY queue is
// full, they find out by themselves.
func (k *link) giveBack(key int64) ([]string, error) {
	number := strconv.FormatInt(key, 10)
	row, err := k.ask(unlockTellingSQL, number)
	switch {
	case !answered(err):
		return row, err
	case len(row) > 0: // a session-level unlock stands even if the statement did not commit
		return row, nil
	}
	return k.ask(unlockSQL, number)
}

// ask sends one statement and returns the columns of its one row, if any, even if the statement could not commit.
func (k *link) ask(sql string, args ...string) ([]string, error) {
	_ = k.raw.SetDeadline(time.Now().Add(k.within)) // an error of the socket shows when it is used
	values := make([][]byte, len(args))
	for i, arg := range args {
		values[i] = []byte(arg)
	}
	ended := k.trace(sql, args)
	result := k.pg.ExecParams(context.Background(), sql, values, nil, nil, nil).Read()
	ended(result)
	var row []string
	for _, value := range result.Rows[:min(1, len(result.Rows))] {
		for _, column := range value {
			row = append(row, string(column))
		}
	}
	return row, result.Err
}

// trace reports a statement and its end to the tracer of the caller's pool, as pgx would.
func (k *link) trace(sql string, args []string) (ended func(*pgconn.Result)) {
	if k.tracer == nil {
		return func(*pgconn.Result) {}
	}
	given := make([]any, len(args))
	for i, arg := range args {
		given[i] = arg
	}
	ctx := k.tracer.TraceQueryStart(context.Background(), k.conn, pgx.TraceQueryStartData{SQL: sql, Args: given})
	return func(result *pgconn.Result) {
		k.tracer.TraceQueryEnd(ctx, k.conn, pgx.TraceQueryEndData{CommandTag: result.CommandTag, Err: result.Err})
	}
}

// listen waits for a message until the deadline. Neither the deadline nor an interrupt is an error.
func (k *link) listen() error {
	err := k.pg.WaitForNotification(context.Background())
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !k.pg.IsClosed() {
		return nil
	}
	return err
}

// until sets the deadline of the next listen.
func (k *link) until(t time.Time) { _ = k.raw.SetDeadline(t) }

// interrupt ends a listen in progress.
func (k *link) interrupt() { _ = k.raw.SetReadDeadline(time.Unix(1, 0)) }

// sever closes the connection without a Terminate message. PostgreSQL notices and releases the session's locks.
func (k *link) sever() { _ = k.raw.Close() }

// leave closes the connection in an orderly way.
func (k *link) leave() {
	_ = k.raw.SetDeadline(time.Now().Add(k.within))
	_ = k.pg.Close(context.Background())
	k.sever()
}
