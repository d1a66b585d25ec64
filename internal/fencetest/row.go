package fencetest

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// OnConn runs a call on a connection of the pool.
func OnConn(ctx context.Context, pool *pgxpool.Pool, fn func(conn *pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(conn.Conn())
}

// Update writes a value with a bare token.
func Update(ctx context.Context, db pgsession.DB, tok token.Token, id int, value string) error {
	return pgrow.Update(ctx, db, Rows, tok, pgtable.Key{id}, pgtable.Set{"value": value})
}

// UpdateClaimed writes a value under a claim.
func UpdateClaimed(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim, id int, value string) error {
	return OnConn(ctx, pool, func(conn *pgx.Conn) error {
		return UpdateOn(ctx, conn, c, Rows, pgtable.Key{id}, pgtable.Set{"value": value})
	})
}

// UpdateOn writes columns of a row under a claim.
func UpdateOn(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) error {
	return pgrow.NewWriter(t).Update(ctx, conn, pgclaim.Send(c), key, set)
}

// InsertClaimed inserts a row under a claim.
func InsertClaimed(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim, id int, value string) error {
	return OnConn(ctx, pool, func(conn *pgx.Conn) error {
		return pgrow.InsertClaimed(ctx, conn, c, Rows, pgtable.Key{id}, pgtable.Set{"value": value})
	})
}

// UpsertClaimed inserts or updates a row under a claim.
func UpsertClaimed(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim, id int, value string) error {
	return OnConn(ctx, pool, func(conn *pgx.Conn) error {
		_, err := pgrow.UpsertClaimed(ctx, conn, c, Rows, pgtable.Key{id}, pgtable.Set{"value": value})
		return err
	})
}

// DeleteClaimed deletes a row under a claim.
func DeleteClaimed(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim, id int) error {
	return OnConn(ctx, pool, func(conn *pgx.Conn) error {
		return DeleteOn(ctx, conn, c, Rows, pgtable.Key{id})
	})
}

// DeleteOn deletes a row under a claim.
func DeleteOn(ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, t pgtable.Table, key pgtable.Key) error {
	return pgrow.NewWriter(t).Delete(ctx, conn, pgclaim.Send(c), key)
}

// ModifyClaimed appends to the value of a row, in its own transaction.
func ModifyClaimed(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim, id int, more string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var value string
		return pgrow.ModifyRow(ctx, tx, c, Rows, pgtable.Key{id}, []string{"value"}, func(r pgx.Rows) error {
			for r.Next() {
				if err := r.Scan(&value); err != nil {
					return err
				}
			}
			return r.Err()
		}, func() (pgtable.Set, error) { return pgtable.Set{"value": value + more}, nil })
	})
}

// WantOnly requires exactly one outcome.
func WantOnly(t *testing.T, name string, err, want error) {
	t.Helper()
	for _, outcome := range []error{
		pgerr.ErrInvalid, pgerr.ErrUnavailable, pgerr.ErrStale, pgerr.ErrTokenSpent, pgerr.ErrNotFound, pgerr.ErrExists,
		pgerr.ErrRefused, pgerr.ErrOutcomeUnknown, pgerr.ErrJump, pgerr.ErrTable,
	} {
		if errors.Is(err, outcome) != (outcome == want) { //nolint:errorlint // which of the sentinels it is
			t.Errorf("%s: got %v, want %v alone", name, err, want)
		}
	}
}

// AsRole returns a pool of a role that has only the given grants.
func AsRole(t *testing.T, pool *pgxpool.Pool, grants string) *pgxpool.Pool {
	t.Helper()
	name := pool.Config().ConnConfig.Database + "_worker" // unique to the test
	role := pgx.Identifier{name}.Sanitize()
	Exec(t, pool, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	Exec(t, pool, `GRANT USAGE ON SCHEMA fencepost, app TO `+role)
	Exec(t, pool, `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost TO `+role)
	if grants != "" {
		Exec(t, pool, grants+` TO `+role)
	}
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION `+role)
		return err
	}
	worker, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	return worker
}
