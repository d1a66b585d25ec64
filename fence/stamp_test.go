package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/token"
)

// keepOldToken gives app.item a trigger that restores the old token, and gives its rows token 4.
func keepOldToken(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	fencetest.Exec(t, pool, `UPDATE app.item SET last_fencing_token = 4`)
	stampBy(
		t,
		pool,
		`IF TG_OP = 'UPDATE' THEN NEW.last_fencing_token := OLD.last_fencing_token; ELSE NEW.last_fencing_token := 0; END IF`,
	)
}

// stampBy creates a trigger that changes each row that is written.
func stampBy(t *testing.T, pool *pgxpool.Pool, body string) {
	t.Helper()
	fencetest.Exec(
		t,
		pool,
		`CREATE OR REPLACE FUNCTION app.stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+body+`; RETURN NEW; END $$;
		DROP TRIGGER IF EXISTS stamp ON app.item;
		CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.stamp()`,
	)
}

func wantStamp(t *testing.T, what string, err error, tok, stored token.Token) {
	t.Helper()
	var stamp *fence.StampError
	if !errors.As(err, &stamp) ||
		*stamp != (fence.StampError{Table: fencetest.Rows.String(), Token: tok, Stored: stored}) {
		t.Errorf("%s: %v; want that %d stays at %d", what, err, tok, stored)
	}
	if !errors.Is(err, fence.ErrTable) || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrOutcomeUnknown) {
		t.Errorf("%s: %v is of another kind", what, err)
	}
}

// C36: a row count is no proof of the stamp. A bare write whose token a trigger takes back is an error, and nothing of
// it stays, whatever it is sent through. The control is the statement that fence.Update was before: it is taken for
// accepted each time.
func TestCase36_ABareTokenThatDoesNotStayIsAnError(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	keepOldToken(t, pool)
	db := openSQL(t, pool.Config().ConnString())
	for what, write := range map[string]func(tok token.Token) error{
		"pool": func(tok token.Token) error { return fencetest.Update(t.Context(), pool, tok, 1, "pool") },
		"connection": func(tok token.Token) error {
			return fencetest.OnConn(t.Context(), pool,
				func(conn *pgx.Conn) error { return fencetest.Update(t.Context(), conn, tok, 1, "connection") })
		},
		"transaction that overlooks it": func(tok token.Token) (err error) {
			_ = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				err = fencetest.Update(t.Context(), tx, tok, 1, "transaction")
				return nil
			})
			return err
		},
		"database/sql": func(tok token.Token) error {
			return fence.UpdateSQL(t.Context(), db, rows, tok, fence.Key{1}, fence.Set{"value": "database/sql"})
		},
	} {
		for _, tok := range []token.Token{5, 5, 9, 6} {
			wantStamp(t, what, write(tok), tok, 4)
		}
		if r := fencetest.Read(t, pool, 1); r.Value != "" || r.Token != 4 {
			t.Errorf("%s: the row is %+v", what, r)
		}
	}
	for _, tok := range []int{5, 5, 9, 6} {
		tag, err := pool.Exec(
			t.Context(),
			`UPDATE app.item SET value = 'x', last_fencing_token = $1 WHERE id = 1 AND last_fencing_token < $1`,
			tok,
		)
		if err != nil || tag.RowsAffected() != 1 {
			t.Errorf("the control: %v, %v", tag, err)
		}
	}
}

// C36, under a claim: every form of write.
func TestCase36_AClaimedStampThatDoesNotStayIsAnError(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	keepOldToken(t, m.Pool)
	ctx, set := t.Context(), fence.Set{"value": "new"}
	autocommit := func(write func(ctx context.Context, conn *pgx.Conn) error) error {
		return fencetest.OnConn(ctx, m.Pool, func(conn *pgx.Conn) error { return write(ctx, conn) })
	}
	for what, c := range map[string]struct {
		err    error
		stored token.Token
	}{
		"update": {autocommit(func(ctx context.Context, conn *pgx.Conn) error {
			return fencetest.UpdateOn(ctx, conn, m.Claim, fencetest.Rows, fence.Key{1}, set)
		}), 4},
		"claim": {autocommit(func(ctx context.Context, conn *pgx.Conn) error {
			return pgrow.StampRow(ctx, conn, m.Claim, fencetest.Rows, fence.Key{1},
				[]string{"value", "id"}, func(rows pgx.Rows) error {
					_, err := pgx.CollectRows(rows, pgx.RowToMap)
					return err
				})
		}), 4},
		"insert": {autocommit(func(ctx context.Context, conn *pgx.Conn) error {
			return pgrow.InsertClaimed(ctx, conn, m.Claim, fencetest.Rows, fence.Key{4}, set)
		}), 0},
		"upsert": {autocommit(func(ctx context.Context, conn *pgx.Conn) error {
			return fencetest.Second(pgrow.UpsertClaimed(ctx, conn, m.Claim, fencetest.Rows, fence.Key{1}, set))
		}), 4},
		"modify": {pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
			return pgrow.ModifyRow(ctx, tx, m.Claim, fencetest.Rows, fence.Key{1}, []string{"value"},
				func(pgx.Rows) error { return nil }, func() (fence.Set, error) { return set, nil })
		}), 4},
		"batch":            {m.Write(ctx, fencetest.Changes("new", 1, 2), nil, (*pgbatch.Batch).Update), 4},
		"batch in part":    {m.Write(ctx, fencetest.Changes("new", 1, 2, 9), fencetest.Partial, (*pgbatch.Batch).Update), 4},
		"batch of upserts": {m.Write(ctx, fencetest.Changes("new", 1, 2), nil, fencetest.UpsertBatch), 4},
		"batch of upserts, in part": {m.Write(ctx, fencetest.Changes("new", 1, 2),
			fencetest.Partial, fencetest.UpsertBatch), 4},
		"load":         {m.Load(ctx, m.Claim, fencetest.Source("new", 1, 2), nil), 4},
		"load in part": {m.Load(ctx, m.Claim, fencetest.Source("new", 1, 2), fencetest.Partial), 4},
	} {
		wantStamp(t, what, c.err, m.Claim.Token, c.stored)
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old' OR last_fencing_token <> 4 OR id > 3`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	fencetest.Exec(t, m.Pool, `DROP TRIGGER stamp ON app.item`)
	if err := m.Load(
		ctx,
		m.Claim,
		fencetest.Source("new", 1, 2, 3, 4),
		nil,
	); err != nil ||
		fencetest.Count(t, m.Pool, `last_fencing_token = 5`) != 4 {
		t.Errorf("without the trigger: %v", err)
	}
}

// C36: this holds for every value that a trigger may put there, including NULL and higher tokens. A rule that replaces
// the write, of which PostgreSQL returns only a count, is a refusal.
func TestCase36_WhateverKeepsTheStampAway(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(
		t,
		pool,
		`ALTER TABLE app.item ALTER last_fencing_token DROP NOT NULL, DROP CONSTRAINT item_last_fencing_token_check`,
	)
	for body, stored := range map[string]token.Token{
		`NEW.last_fencing_token := NULL`: 0, `NEW.last_fencing_token := 1000`: 1000, `NEW.last_fencing_token := -3`: -3,
		`IF NEW.value = 'new' THEN NEW.last_fencing_token := 2; END IF`: 2,
	} {
		stampBy(t, pool, body)
		wantStamp(t, body, fencetest.Update(t.Context(), pool, 5, 1, "new"), 5, stored)
	}
	stampBy(t, pool, `NEW.updated_at := now()`)
	if err := fencetest.Update(t.Context(), pool, 5, 1, "new"); err != nil {
		t.Errorf("a trigger that leaves the token alone: %v", err)
	}
	for _, rule := range []string{`NOTHING`, `INSERT INTO app.noted VALUES (NEW.value)`} {
		fencetest.Exec(
			t,
			pool,
			`CREATE TABLE IF NOT EXISTS app.noted (value text);
				CREATE OR REPLACE RULE instead AS ON UPDATE TO app.item DO INSTEAD `+rule,
		)
		if err := fencetest.Update(t.Context(), pool, 9, 1, "ruled"); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if r := fencetest.Read(t, pool, 1); r.Value != "new" || r.Token != 5 {
		t.Errorf("the row is %+v", r)
	}
}

// If a value of the caller's cannot be cast, the error stays the caller's.
func TestACastOfTheCallersIsNoStamp(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	stampBy(t, pool, `PERFORM 'fence'::bigint`)
	err := fencetest.Update(t.Context(), pool, 5, 1, "new")
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "22P02" || errors.Is(err, fence.ErrTable) ||
		errors.Is(err, fence.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// An AFTER trigger that writes the row once more runs after the stamp was checked, so it can undo the stamp unseen. The
// documentation names this limit. A protection stamps that write as well.
func TestAnAfterTriggerTakesNoStampBackBehindAProtection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool  *pgxpool.Pool
		stays token.Token
	}{
		"the control, without a protection": {fencetest.Setup(t), 4},
		"on a protected table":              {protected(t), 5},
	} {
		fencetest.Exec(t, c.pool, `CREATE FUNCTION app.again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF pg_trigger_depth() = 1 THEN UPDATE app.item SET last_fencing_token = 4 WHERE id = NEW.id; END IF;
				RETURN NULL; END $$;
			CREATE TRIGGER again AFTER UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.again()`)
		claim := fencetest.MustRaise(t, c.pool, fencetest.ClaimOf("test:item:1", 5))
		err := fencetest.OnConn(t.Context(), c.pool, func(conn *pgx.Conn) error {
			return fencetest.UpdateOn(t.Context(), conn, claim, fencetest.Rows, fence.Key{1}, fence.Set{"value": "new"})
		})
		if r := fencetest.Read(t, c.pool, 1); err != nil || r.Value != "new" || r.Token != c.stays {
			t.Errorf("%s: %v, the row is %+v", name, err, r)
		}
	}
}
