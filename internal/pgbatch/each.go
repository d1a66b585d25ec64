package pgbatch

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// UpsertEach writes the rows in tx, each under the token at its own place in tokens: all of them or none. It inserts
// rows that do not exist, and compares the stored token, as [Batch.Upsert] does. The transaction must have entered a
// claim with that token of each row's resource: UpsertEach guards nothing.
//
// After any error the caller must roll tx back. If a row is stale or refused, the error is a *BatchError that lists
// every such row. Other errors are those of Upsert. ctx bounds the call.
func (b *Batch) UpsertEach(ctx context.Context, tx pgx.Tx, tokens []token.Token) error {
	if len(tokens) != len(b.rows) {
		return pgerr.Invalidf("%d tokens for %d rows", len(tokens), len(b.rows))
	}
	if err := errors.Join(b.writer.checkGiven(b.names), pgsession.CheckReady(tx.Conn())); err != nil {
		return err
	}
	e := encoder{batch: b, codec: tx.Conn().TypeMap()}
	report := &BatchError{Table: b.writer.table.String(), Rows: len(b.rows)}
	for places := everyPlace(len(b.rows)); len(places) > 0; {
		p, err := e.cut(places)
		if err != nil {
			return err
		}
		places = places[len(p.places):]
		left, err := b.sendEach(ctx, tx, p, tokens)
		if err == nil && len(left) > 0 {
			err = b.lookEach(ctx, tx, &e, left, tokens, report)
		}
		if err != nil {
			return err
		}
	}
	if report.Failed() > 0 {
		return report
	}
	return nil
}

func everyPlace(n int) []int {
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	return places
}

// sendEach writes a part, and returns the places of the rows that do not carry their token now.
func (b *Batch) sendEach(ctx context.Context, tx pgx.Tx, p part, tokens []token.Token) (left []int, err error) {
	stmt := b.writer.rounding().eachSQL(b.names, p, tokenArray(p.places, tokens))
	err = sendRows(ctx, tx, b.writer.table, func(batch *pgx.Batch) {
		batch.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			var n int
			_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
				left = append(left, p.places[n-1])
				return nil
			})
			return err
		})
	})
	return left, pgrow.OfTable(b.writer.table, 0, err)
}

// lookEach finds out why rows were not written: see [batchWrite.look].
func (b *Batch) lookEach(
	ctx context.Context, tx pgx.Tx, e *encoder, left []int, tokens []token.Token, report *BatchError,
) error {
	keys, err := e.keysOf(left)
	if err != nil {
		return err
	}
	stmt := b.writer.rounding().lookSQL(keys)
	return sendRows(ctx, tx, b.writer.table, func(batch *pgx.Batch) {
		batch.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			var n int
			var stored *token.Token
			_, err := pgx.ForEachRow(rows, []any{&n, &stored}, func() error {
				place := left[n-1]
				failure, why := RowError{Index: place, Key: b.rows[place].Key, Err: pgrow.Refused(b.writer.table)}, denied
				if stored != nil && *stored > tokens[place] {
					failure.Err, why = staleRow(b.writer.table, tokens[place], *stored), stale
				}
				report.add(failure, why)
				return nil
			})
			return err
		})
	})
}

func staleRow(table pgtable.Table, tok, current token.Token) error {
	return &pgerr.StaleError{Resource: table.String(), Token: tok, Current: current, Row: true}
}

func tokenArray(places []int, tokens []token.Token) array {
	text := append(make([]byte, 0, 2+8*len(places)), '{')
	for i, place := range places {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(tokens[place]), 10)
	}
	return array{integers, string(append(text, '}'))}
}

// eachSQL is the upsert of a part whose rows each have a token, sent as one more column. It returns the places, within
// the part, of the rows that do not carry it afterwards.
//
// EXCLUDED is the proposed row after the table's triggers. A trigger that changes the token there is found by what the
// row carries in the end, as in a batch under one token.
//
// What was sent and what was written are compared by grouping, whose time does not depend on what the planner expects:
// a join would be a nested loop under a plan that was made for a few rows.
func (b *BatchWriter) eachSQL(names []string, p part, tokens array) pgsql.Statement {
	column := b.table.TokenColumn()
	all := append(b.all(names), column)
	arrays := append(p.arrays(), tokens)
	sql := b.sent(pgsql.Builder("WITH given AS MATERIALIZED "), 1, all, arrays).Text(", written AS (")
	sql = b.insertInto(sql, names).Text("SELECT ").List(len(all), ", ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return place(sql.Text("u."), i)
	}).Text(" FROM given")
	sql = b.inOrder(sql.Text(" AS u ORDER BY ")).Text(" ON CONFLICT (").Names("", b.table.Key).Text(") DO UPDATE SET ")
	for _, name := range names {
		sql = sql.Name(name).Text(" = EXCLUDED.").Name(name).Text(", ")
	}
	sql = sql.Name(column).Text(" = EXCLUDED.").Name(column)
	sql = sql.Text(" WHERE t.").Name(column).Text(" <= EXCLUDED.").Name(column).Text(" RETURNING t.").Name(column)
	sql = sql.Text(" AS stamp, ").Names("t.", b.table.Key).Text(") SELECT min(x.n) FROM (SELECT g.n")
	columns := func(sql pgsql.Builder, alias string) pgsql.Builder {
		for i := range b.table.Key {
			sql = place(sql.Text(alias, "."), i).Text(", ")
		}
		return place(sql.Text(alias, "."), len(all)-1)
	}
	sql = columns(sql.Text(", "), "g").Text(" FROM given AS g UNION ALL SELECT NULL, ").Names("w.", b.table.Key)
	sql = columns(sql.Text(", w.stamp FROM written AS w) AS x GROUP BY "), "x")
	sql = sql.Text(" HAVING count(*) OPERATOR(pg_catalog.=) count(x.n) ORDER BY 1")
	return pgsql.Statement{SQL: sql.String(), Args: appendArrays(nil, arrays)}
}
