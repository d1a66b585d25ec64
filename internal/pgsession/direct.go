package pgsession

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// directKey is the key under which a connection keeps its direct.
const directKey = "fencepost.direct"

// direct is what a connection remembers about statements that are sent directly.
//
// Invariant: no statement has its own text as its name. pgx would send it for the same text in a call of the program,
// such as a BeginTx, and would not prepare it again once it is gone.
type direct struct {
	may     bool
	begun   pgx.Batch         // of a transaction that has begun; empty, so sending it sends nothing
	names   map[string]string // of prepared statements, by their text
	commits commits
}

// Direct reports whether statements may be sent on a connection as prepared statements, beside pgx's own batches. A
// batch costs seven allocations for each of its statements, and some for each argument. Only a batch is seen by the
// caller's tracer, and only a batch keeps to the query mode that a connection behind a pooler is configured with.
func Direct(conn *pgx.Conn) bool { return directOf(conn).may }

func directOf(conn *pgx.Conn) *direct {
	data := conn.PgConn().CustomData()
	if d, known := data[directKey].(*direct); known {
		return d
	}
	config := conn.Config()
	d := &direct{
		may:   config.Tracer == nil && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement,
		names: map[string]string{commitSQL: CommitName},
	}
	d.begun.BeginTx(pgx.TxOptions{})
	d.begun.QueuedQueries = nil
	data[directKey] = d
	return d
}

// prepare prepares a statement, once for each connection.
func prepare(ctx context.Context, conn *pgx.Conn, sql string) (*pgconn.StatementDescription, error) {
	return conn.Prepare(ctx, directOf(conn).name(sql), sql)
}

func (d *direct) name(sql string) string {
	name, known := d.names[sql]
	if !known {
		digest := sha256.Sum256([]byte(sql))
		name = "fencepost_" + hex.EncodeToString(digest[:16])
		d.names[sql] = name
	}
	return name
}

// Params are the arguments of a statement, in PostgreSQL's text format.
type Params struct {
	values [6][]byte
	n      int
	buf    []byte // of all values
}

// NewParams returns no arguments yet, and room for so many bytes.
func NewParams(bytes int) *Params { return &Params{buf: make([]byte, 0, bytes)} }

// Text adds a text.
func (p *Params) Text(s string) *Params { return p.add(append(p.buf, s...)) }

// Int adds an integer.
func (p *Params) Int(i int64) *Params { return p.add(strconv.AppendInt(p.buf, i, 10)) }

// Hex adds bytes as hexadecimal digits, as a uuid may be written.
func (p *Params) Hex(b []byte) *Params { return p.add(hex.AppendEncode(p.buf, b)) }

// add takes the buffer with one more value at its end. Earlier values stay valid if the buffer has moved.
func (p *Params) add(buf []byte) *Params {
	p.values[p.n] = buf[len(p.buf):]
	p.n, p.buf = p.n+1, buf
	return p
}

const beginSQL = "begin isolation level read committed"

// BeginDirect begins a READ COMMITTED transaction, and runs a statement in it that returns one row of one text, all in
// one round trip. The connection must be one for [Direct]. If the statement fails, the transaction is rolled back.
//
// If the connection's prepared statements are gone (after DISCARD ALL, for example) or no longer valid, it prepares
// them again.
func BeginDirect(ctx context.Context, conn *pgx.Conn, sql string, p *Params) (tx pgx.Tx, answer string, err error) {
	d := directOf(conn)
	if err := d.prepareCommit(ctx, conn); err != nil {
		return nil, "", err
	}
	answer, err = begin(ctx, conn, sql, p)
	if err != nil && forget(ctx, conn, err, beginSQL, sql, checkSQL, commitSQL) {
		d.commits = notPrepared
		if err := d.prepareCommit(ctx, conn); err != nil {
			return nil, "", err
		}
		answer, err = begin(ctx, conn, sql, p)
	}
	if err != nil {
		return nil, "", err
	}
	return conn.SendBatch(ctx, &d.begun).Tx(), answer, nil
}

func begin(ctx context.Context, conn *pgx.Conn, sql string, p *Params) (answer string, err error) {
	begin, err := prepare(ctx, conn, beginSQL)
	if err != nil {
		return "", err
	}
	statement, err := prepare(ctx, conn, sql)
	if err != nil {
		return "", err
	}
	var b pgconn.Batch
	b.ExecStatement(begin, nil, nil, nil)
	b.ExecStatement(statement, p.values[:p.n], nil, nil)
	answer, err = read(conn.PgConn().ExecBatch(ctx, &b))
	if err != nil && conn.PgConn().TxStatus() != 'I' && !conn.IsClosed() {
		rollback(ctx, conn)
	}
	return answer, err
}

// AskDirect runs a statement that returns one row of one text, and commits by itself, in one round trip. See
// [BeginDirect] about the connection and its prepared statements.
func AskDirect(ctx context.Context, conn *pgx.Conn, sql string, p *Params) (answer string, err error) {
	answer, err = ask(ctx, conn, sql, p)
	if err != nil && forget(ctx, conn, err, sql) {
		answer, err = ask(ctx, conn, sql, p)
	}
	return answer, err
}

func ask(ctx context.Context, conn *pgx.Conn, sql string, p *Params) (answer string, err error) {
	statement, err := prepare(ctx, conn, sql)
	if err != nil {
		return "", &unsent{err}
	}
	result := conn.PgConn().ExecStatement(ctx, statement, p.values[:p.n], nil, nil)
	for result.NextRow() {
		answer = string(result.Values()[0])
	}
	_, err = result.Close()
	return answer, err
}

// unsent is an error from before a statement was sent.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// read returns the text of the last row, once everything has been read.
func read(results *pgconn.MultiResultReader) (answer string, err error) {
	for results.NextResult() {
		result := results.ResultReader()
		for result.NextRow() {
			answer = string(result.Values()[0])
		}
		_, _ = result.Close() // Close of results returns its error too
	}
	return answer, results.Close()
}

// forget forgets prepared statements if an error says that they cannot be used, and reports whether it did.
func forget(ctx context.Context, conn *pgx.Conn, err error, statements ...string) bool {
	server, answered := pgerr.ServerError(err)
	if !answered || conn.IsClosed() || !pgerr.StatementGone(server) {
		return false
	}
	for _, sql := range statements {
		if conn.Deallocate(ctx, directOf(conn).name(sql)) != nil {
			return false
		}
	}
	return true
}
