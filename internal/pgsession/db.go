package pgsession

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what pgtable.Inspect uses to read the catalog: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLTx is what pgclaim.EnterSQL guards: a *sql.Tx, or a wrapper of one (the transaction of an ORM or a helper
// library). A *sql.DB and a *sql.Conn do not fit, because a guard in a statement that commits by itself would guard
// nothing.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// SQLDB is what pgrow.UpdateSQL writes through: a *sql.DB, a *sql.Conn or a *sql.Tx.
type SQLDB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQLBeginner is what pgclaim.RaiseSQL claims through: a *sql.DB or a *sql.Conn.
type SQLBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// SQLPool is a *sql.DB, or a wrapper of one.
type SQLPool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// DB is what pgrow.Update writes through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
