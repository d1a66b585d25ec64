package pgsession

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// Discard is fence.Discard.
func Discard(conn *pgx.Conn, err error) {
	if err == nil || conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), discardWithin)
	defer cancel()
	if useless(err, func() bool { return leadsToStandby(ctx, conn) }) {
		_ = conn.Close(ctx) // closed even if this fails
	}
}

// leadsToStandby asks a server whether it is a standby, unless the server has reported it, as PostgreSQL does from 14
// on.
func leadsToStandby(ctx context.Context, conn *pgx.Conn) (standby bool) {
	if told := conn.PgConn().ParameterStatus("in_hot_standby"); told != "" {
		return told == "on"
	}
	err := conn.QueryRow(ctx, recoverySQL, pgx.QueryExecModeExec).Scan(&standby)
	return standby || err != nil
}

const recoverySQL = `SELECT pg_catalog.pg_is_in_recovery()`

// discardWithin bounds the last statements on a connection that is to be discarded.
const discardWithin = time.Second

// DiscardSQL is fence.DiscardSQL.
func DiscardSQL(conn *sql.Conn, err error) {
	standby := func() (standby bool) {
		ctx, cancel := context.WithTimeout(context.Background(), discardWithin)
		defer cancel()
		err := conn.QueryRowContext(ctx, recoverySQL).Scan(&standby)
		return standby || err != nil
	}
	if useless(err, standby) {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // database/sql then closes it
	}
}

// LeaveStandby is DiscardSQL for a pool that has been given its connection back: the connection returned last is the
// first to be handed out.
func LeaveStandby(pool SQLPool, err error) {
	if server, answered := pgerr.ServerError(err); !answered || server.Code != pgerr.CodeReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), discardWithin)
	defer cancel()
	conn, connErr := pool.Conn(ctx)
	if connErr != nil {
		return
	}
	DiscardSQL(conn, err)
	_ = conn.Close() // returns it to the pool otherwise
}

// useless reports what an error says about its connection. A server that refuses to write may be a standby, which has
// to be found out. On a primary an operator has stopped all writes, and another connection would not help.
func useless(err error, onStandby func() bool) bool {
	server, answered := pgerr.ServerError(err)
	switch {
	case !answered:
		return false // the driver closes a connection that it can no longer use
	case server.Code == pgerr.CodeReadOnly:
		return onStandby()
	case server.Code == pgerr.CodeInvalidText:
		return strings.Contains(server.Message, pgsql.StandbyMark)
	}
	return pgerr.IsStandby(server) || strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "57P")
}

// OnConn runs a function on db. If db is a pool, it uses one of its connections, and does not return it to the pool if
// it turns out to be useless.
func OnConn(ctx context.Context, db Querier, verb string, ask func(Querier) error) error {
	on, done, err := onReady(ctx, db)
	if err != nil {
		return pgerr.Doing(verb, err)
	}
	defer done()
	err = ask(on)
	if conn, taken := on.(*pgxpool.Conn); taken {
		Discard(conn.Conn(), err)
	}
	return err
}
