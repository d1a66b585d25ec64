package advisory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// link is the connection of a session. One goroutine uses it at a time, except for interrupt and sever.
//
// It was taken from the pool for good, so that the pool's hooks have seen it and none of the pool's limits can retire
// it, and is driven without pgx: deadlines stand on the socket, nothing is prepared, and messages come to the session.
type link struct {
	raw    net.Conn
	pg     *pgconn.PgConn
	within time.Duration // how long an answer may take
}

// channel carries the key of each lock that was given back, in decimal.
const channel = "fencepost_advisory"

// openLink opens the connection, and refuses one that does not lead straight to a primary.
func openLink(ctx context.Context, pool *pgxpool.Pool, opts *Options, told func(payload string)) (*link, error) {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	k, err := newLink(pooled.Hijack().PgConn(), told)
	if err != nil {
		return nil, err
	}
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

// newLink makes a link of a connection that belongs to nobody else any more.
func newLink(conn *pgconn.PgConn, told func(payload string)) (*link, error) {
	hijacked, err := conn.Hijack()
	if err != nil {
		_ = conn.Conn().Close() // the pool has let go of it
		return nil, err
	}
	config := hijacked.Config.Copy()
	config.OnNotice = nil
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if n.Channel == channel {
			told(n.Payload)
		}
	}
	// Nothing that is asked here waits in the server, so there is never anything to cancel, and nothing to dial for.
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	hijacked.Config = config
	pg, err := pgconn.Construct(hijacked)
	if err != nil {
		_ = hijacked.Conn.Close()
		return nil, err
	}
	return &link{raw: hijacked.Conn, pg: pg}, nil
}

// settleSQL changes settings only where nothing stands between: those of a pooler's connection would reach others.
//
// idle_session_timeout exists from PostgreSQL 14 on; the settings of TCP have no effect on Unix sockets.
const settleSQL = `
SELECT pg_catalog.pg_backend_pid()::text, pg_catalog.pg_is_in_recovery()::text,
       (SELECT pg_catalog.count(pg_catalog.set_config(s.name, v.value, false))
          FROM (VALUES ('idle_session_timeout', $2::text), ('application_name', $3::text),
                       ('tcp_keepalives_idle', $4::text), ('tcp_keepalives_interval', $5::text), ('tcp_keepalives_count', '3'),
                       ('tcp_user_timeout', $2::text),
                       ('statement_timeout', '0'), ('lock_timeout', '0'), ('synchronous_commit', 'off')) AS v (name, value)
          JOIN pg_catalog.pg_settings AS s USING (name)
         WHERE pg_catalog.pg_backend_pid() = $1::bigint)::text`

// settle finds out whom the connection leads to, and sets what the session needs.
func (k *link) settle(opts *Options) error {
	ttl, pid := milliseconds(opts.TTL), strconv.FormatUint(uint64(k.pg.PID()), 10)
	row, err := k.ask(settleSQL, pid, ttl, opts.Label, seconds(opts.TTL/2), seconds(opts.TTL/6))
	switch {
	case err != nil:
		return err
	case row[0] != pid:
		return invalidf("there is a pooler (PgBouncer, for instance) between this process and PostgreSQL: session %s answered for %s. "+
			"Session-level advisory locks need a connection of their own, also behind PgBouncer's session mode: "+
			"hand in a pool that leads straight to PostgreSQL, or use transaction-level locks", row[0], pid)
	case row[1] == "true":
		return errStandby
	}
	return nil
}

var errStandby = errors.New("the server is a standby: advisory locks there are its own, and exclude nobody on the primary")

// milliseconds and seconds round up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

const (
	tryLockSQL = `SELECT pg_catalog.pg_try_advisory_lock($1::bigint)::text, ''`

	// tryLockNamingSQL also says who holds it, as far as that can be told.
	tryLockNamingSQL = `
SELECT got::text, CASE WHEN NOT got THEN
    (SELECT a.application_name FROM pg_catalog.pg_locks AS k JOIN pg_catalog.pg_stat_activity AS a ON a.pid = k.pid
      WHERE k.locktype = 'advisory' AND k.classid = $2::oid AND k.objid = $3::oid AND k.objsubid = 1 AND k.granted
        AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
      LIMIT 1) END
  FROM (SELECT pg_catalog.pg_try_advisory_lock($1::bigint) AS got OFFSET 0) AS asked`

	unlockSQL = `SELECT pg_catalog.pg_advisory_unlock($1::bigint)::text`

	// unlockTellingSQL tells those who wait as well: the message goes out with the statement's commit, and the lock is free by then.
	unlockTellingSQL = `SELECT pg_catalog.pg_advisory_unlock($1::bigint)::text, pg_catalog.pg_notify('` + channel + `', $1::text)::text`
)

// tryLock asks for a lock, without waiting for it.
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
	return row[0] == "true", row[1], nil
}

// unlock gives a lock back. That it was not held is an error.
func (k *link) unlock(key int64) error {
	row, err := k.giveBack(key)
	if err == nil && row[0] != "true" {
		return fmt.Errorf("advisory lock %d was not held by its session", key)
	}
	return err
}

// forget gives a lock back that was perhaps never got.
func (k *link) forget(key int64) error {
	_, err := k.giveBack(key)
	return err
}

// giveBack unlocks, and tells those who wait where PostgreSQL can. Where it cannot, its NOTIFY queue being full for instance, they find out by
// themselves.
func (k *link) giveBack(key int64) ([]string, error) {
	number := strconv.FormatInt(key, 10)
	row, err := k.ask(unlockTellingSQL, number)
	switch {
	case !answered(err):
		return row, err
	case len(row) > 0: // a session's lock that was unlocked stays so, also where the statement did not commit
		return row, nil
	}
	return k.ask(unlockSQL, number)
}

// ask sends one statement and returns the texts of the one row that it gives, if it gives any, also where it could not commit.
func (k *link) ask(sql string, args ...string) ([]string, error) {
	_ = k.raw.SetDeadline(time.Now().Add(k.within)) // what is wrong with the socket shows when it is used
	values := make([][]byte, len(args))
	for i, arg := range args {
		values[i] = []byte(arg)
	}
	result := k.pg.ExecParams(context.Background(), sql, values, nil, nil, nil).Read()
	var row []string
	for _, value := range result.Rows[:min(1, len(result.Rows))] {
		for _, column := range value {
			row = append(row, string(column))
		}
	}
	return row, result.Err
}

// listen waits for a message until the given time. Its end is no error, nor is an interrupt.
func (k *link) listen() error {
	err := k.pg.WaitForNotification(context.Background())
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !k.pg.IsClosed() {
		return nil
	}
	return err
}

// until bounds the next listen.
func (k *link) until(t time.Time) { _ = k.raw.SetDeadline(t) }

// interrupt ends a listen that is under way.
func (k *link) interrupt() { _ = k.raw.SetReadDeadline(time.Unix(1, 0)) }

// sever ends the connection without a word. PostgreSQL notices and gives the session's locks back.
func (k *link) sever() { _ = k.raw.Close() }

// leave ends the connection in good order.
func (k *link) leave() {
	_ = k.raw.SetDeadline(time.Now().Add(k.within))
	_ = k.pg.Close(context.Background())
	k.sever()
}
