package pgrow

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// Upsert is fence.Upsert.
func Upsert(
	ctx context.Context, db pgsession.DB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) (inserted bool, err error) {
	if err := errors.Join(tok.Check(), checkNew(t, key, set), pgsession.ReadyDB(db)); err != nil {
		return false, err
	}
	err = onOne(ctx, db, "upsert", func(db pgsession.DB) error {
		inserted, err = upsert(ctx, db, t, tok, key, set)
		return err
	})
	return inserted && err == nil, err
}

func upsert(
	ctx context.Context, db pgsession.DB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) (inserted bool, err error) {
	_, isSQL := db.(overSQL)
	w := write{table: t, token: tok, key: key, stored: strictly, of: either}
	stmt := upsertStatement(t, key, set, int64(tok), strictly, isSQL)
	err = w.bare(ctx, db, func() (changed int64, err error) {
		changed, inserted, err = sendUpsert(ctx, db, stmt)
		return changed, err
	})
	return inserted, err
}

// sendUpsert is [send] for a statement that returns whether it inserted.
func sendUpsert(
	ctx context.Context, db pgsession.DB, stmt pgsql.Statement,
) (changed int64, inserted bool, err error) {
	commits := autocommits(db)
	if conn, ok := db.(*pgx.Conn); ok && commits {
		changed, err = autocommit(ctx, conn, "upsert", stmt, upserted(&inserted))
		return changed, inserted, err
	}
	var stamped int64
	err = db.QueryRow(ctx, stmt.SQL, stmt.Args...).Scan(&stamped, &inserted)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, pgerr.Interpret(ctx, "upsert", err, commits)
	}
	return 1, inserted, nil
}

// UpsertClaimed inserts one row under a claim or, if its key is taken, updates it, and reports which of the two it did.
// Guard and write take one transaction and one round trip. It compares the token of the stored row, never the proposed
// one. A deleted row has no token, so the guard alone refuses overtaken claims there: a fence outlives its rows.
//
// Errors are those of [Writer.Update] without ErrNotFound. conn must not be in a transaction.
func UpsertClaimed(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) (inserted bool, err error) {
	if err := errors.Join(c.Check(), checkNew(t, key, set)); err != nil {
		return false, err
	}
	stmt := upsertStatement(t, key, set, int64(c.Token), withinClaim, false)
	err = claimed(ctx, conn, c, under(t, c, key, either), stmt, upserted(&inserted))
	return inserted && err == nil, err
}

// upserted queues an upsert and records whether it inserted.
func upserted(inserted *bool) queueFunc {
	return func(b *pgx.Batch, stmt pgsql.Statement) *int64 {
		var changed int64
		b.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			*inserted = false
			_, err := pgx.ForEachRow(rows, []any{nil, inserted}, func() error { return nil })
			changed = rows.CommandTag().RowsAffected()
			return err
		})
		return &changed
	}
}

// How an upsert knows what it did. PostgreSQL 13 to 17 do not say (18 has RETURNING old). xmax, which is often used, is
// not documented for this and is not available from a partitioned table. So the statement records it in a setting of
// the transaction: the source row clears the setting, the SET list of DO UPDATE sets it, and RETURNING reads it. This
// relies only on the order of an INSERT … ON CONFLICT: PostgreSQL makes the row to insert before it looks for a
// conflict, evaluates the SET list only for a row that it updates, and evaluates RETURNING last. set_config is
// volatile, so neither call is evaluated at another time.
const (
	clearUpdated = `CASE WHEN pg_catalog.set_config('fencepost.updated', 'off', true) IS NOT NULL THEN ` + stamp + ` END`
	noteUpdated  = `CASE WHEN pg_catalog.set_config('fencepost.updated', 'on', true) IS NOT NULL THEN ` + stamp + ` END`
	wasInserted  = `NOT pg_catalog.current_setting('fencepost.updated')::pg_catalog.bool`
)

// upsertStatement makes INSERT INTO … ON CONFLICT (key) DO UPDATE, which compares the token of the existing row. It
// returns the stamp check, and whether the row was inserted. Over database/sql the same statement also asks the server
// whether the session uses UTF-8.
func upsertStatement(
	t pgtable.Table, key pgtable.Key, set pgtable.Set, tok int64, stored comparison, isSQL bool,
) pgsql.Statement {
	var r pgsql.Buffer
	var names [8]string
	columns := sortedColumns(set, names[:0])
	sql := insertInto(pgsql.Builder(r[:0]), t, columns).Text("SELECT " + clearUpdated)
	sql = given(sql, len(t.Key)+len(columns))
	if isSQL {
		sql = sql.Text(" WHERE " + speaksUTF8)
	} else {
		sql = sql.Text(" WHERE true") // otherwise ON CONFLICT would be parsed as a join's ON
	}
	sql = onConflict(sql.Text(" "), t).Text(" DO UPDATE SET ")
	for i, column := range columns {
		sql = sql.Name(column).Text(" = ").Arg(1 + len(key) + i + 1).Text(", ")
	}
	sql = sql.Name(t.TokenColumn()).Text(" = " + noteUpdated + " WHERE stored.")
	sql = compare(sql, t, stored).Returning(t.TokenColumn()).Text(", " + wasInserted)
	return pgsql.Statement{SQL: sql.String(), Args: newRow(key, set, columns, tok)}
}
