package pgsession

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// ReadyDB is [CheckReady] for anything that pgrow.Update writes through, if it exposes a connection.
func ReadyDB(db DB) error {
	switch v := db.(type) {
	case *pgx.Conn:
		return CheckReady(v)
	case interface{ Conn() *pgx.Conn }: // a transaction, or a connection of a pool
		return CheckReady(v.Conn())
	}
	return nil
}

// CheckReady refuses a connection on which nothing can be sent, or whose encoding could change names: see package
// encoding.
func CheckReady(conn *pgx.Conn) error {
	if conn == nil {
		return nil
	}
	if problem := encoding.Problem(conn.PgConn()); problem != "" {
		return pgerr.Invalidf("%s", problem)
	}
	return CheckFree(conn)
}

// onReady returns a connection that has been checked, for a query with names in it. done returns it to its owner.
func onReady(ctx context.Context, db Querier) (on Querier, done func(), err error) {
	switch v := db.(type) {
	case *pgxpool.Pool:
		conn, err := v.Acquire(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", pgerr.ErrUnavailable, err)
		}
		if err := CheckReady(conn.Conn()); err != nil {
			conn.Release()
			return nil, nil, err
		}
		return conn, conn.Release, nil
	case *pgx.Conn:
		return db, func() {}, CheckReady(v)
	case interface{ Conn() *pgx.Conn }:
		return db, func() {}, CheckReady(v.Conn())
	}
	return db, func() {}, nil
}

// CheckFree refuses a connection on which the caller has left something open. Nothing can be sent on it until that is
// closed, and the server is not at fault.
func CheckFree(conn *pgx.Conn) error {
	if conn != nil && conn.PgConn().IsBusy() {
		return pgerr.Invalidf("the connection is busy: rows or batch results on it have not been closed")
	}
	return nil
}

// CheckIdle is [CheckReady]; it also refuses a connection that is in a transaction.
func CheckIdle(conn *pgx.Conn) error {
	if err := CheckReady(conn); err != nil {
		return err
	}
	if status := conn.PgConn().TxStatus(); status != 'I' {
		return pgerr.Invalidf("the connection is already in a transaction")
	}
	return nil
}
