package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// The library's SQLSTATEs.
const (
	codeStale      = "ZF001"
	codeNotEntered = "ZF004"
)

// claimOf returns a claim. Each check of each run has resources of its own, because the whole database shares their
// gates.
func (s *scratch) claimOf(name string, tok token.Token) fence.Claim {
	return fence.Claim{Resource: s.schema + ":" + name, Token: tok, Nonce: token.NewNonce()}
}

// raise makes a claim. If db is a transaction, the caller ends it.
func (s *scratch) raise(ctx context.Context, db pgxQuerier, c fence.Claim) error {
	var claimed bool
	var current int64
	claim := s.sql(`SELECT claimed, current FROM fencepost.claim($1::text, $2::bigint, $3::uuid)`)
	err := db.QueryRow(ctx, claim, c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&claimed, &current)
	if err == nil && !claimed {
		err = &refusedClaim{current}
	}
	return err
}

// pgxQuerier is a connection or a transaction.
type pgxQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// refusedClaim is a claim that the fence refused.
type refusedClaim struct{ current int64 }

func (e *refusedClaim) Error() string {
	return fmt.Sprintf("the claim was refused by a fence at %d", e.current)
}

func (s *scratch) enter(ctx context.Context, db pgxQuerier, c fence.Claim) error {
	_, err := db.Exec(
		ctx,
		s.sql(`SELECT fencepost.enter($1::text, $2::bigint, $3::uuid)`),
		c.Resource,
		int64(c.Token),
		c.Nonce.Hex(),
	)
	return err
}

// claim makes two claims meet, once with the higher one committed and once with it rolled back. Then it repeats claims.
func (s *scratch) claim(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	meet := func(high, low fence.Claim, end func(pgx.Tx) error) error {
		tx, err := inTx(ctx, a)
		if err != nil {
			return err
		}
		if err := s.raise(ctx, tx, high); err != nil {
			return err
		}
		rival := t.start(ctx, func(ctx context.Context) error { return s.raise(ctx, b, low) })
		if err := rival.waits(s.watch, "the other claim"); err != nil {
			return err
		}
		return errors.Join(end(tx), rival.ends(ctx))
	}
	high, low := s.claimOf("claim", 2), s.claimOf("claim", 1)
	var refused *refusedClaim
	err = meet(high, low, func(tx pgx.Tx) error { return tx.Commit(ctx) })
	if !errors.As(err, &refused) || refused.current != 2 {
		return fmt.Errorf("a lower token was not refused by a fence at 2: %w", orNil(err))
	}
	if err := s.raise(ctx, a, high); err != nil {
		return fmt.Errorf("the same claim again: %w", err)
	}
	if err := s.raise(ctx, a, s.claimOf("claim", 2)); !errors.As(err, &refused) {
		return fmt.Errorf("another claim of the same token was not refused: %w", orNil(err))
	}
	if err := meet(
		s.claimOf("claim", 4),
		s.claimOf("claim", 3),
		func(tx pgx.Tx) error { return tx.Rollback(ctx) },
	); err != nil {
		return fmt.Errorf("after the higher claim was rolled back: %w", err)
	}
	return nil
}

// orNil returns err, or, if err is nil, an error for messages.
func orNil(err error) error {
	if err == nil {
		return errors.New("it was accepted")
	}
	return err
}

// durable claims in a session that does not wait for the disk.
func (s *scratch) durable(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	tx, err := inTx(ctx, conn, `SELECT pg_catalog.set_config('synchronous_commit', 'off', true)`)
	if err != nil {
		return err
	}
	if err := s.raise(ctx, tx, s.claimOf("durable", 1)); err != nil {
		return err
	}
	var setting string
	if err := tx.QueryRow(ctx, `SELECT pg_catalog.current_setting('synchronous_commit')`).Scan(&setting); err != nil {
		return err
	}
	if setting != "on" {
		return fmt.Errorf("after the claim synchronous_commit is %q", setting)
	}
	return tx.Rollback(ctx)
}

// guard runs two guarded transactions at the same time, and a claim that arrives meanwhile.
func (s *scratch) guard(ctx context.Context, t *trial) error {
	a, b, c, err := t.three(ctx)
	if err != nil {
		return err
	}
	held := s.claimOf("guard", 1)
	if err := s.raise(ctx, a, held); err != nil {
		return err
	}
	first, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, first, held); err != nil {
		return err
	}
	beside := t.start(ctx, func(ctx context.Context) error {
		tx, err := inTx(ctx, b)
		if err != nil {
			return err
		}
		return errors.Join(s.enter(ctx, tx, held), tx.Commit(ctx))
	})
	if err := beside.ends(ctx); err != nil {
		return fmt.Errorf("a second guarded transaction: %w", err)
	}
	next := t.start(ctx, func(ctx context.Context) error { return s.raise(ctx, c, s.claimOf("guard", 2)) })
	if err := next.waits(s.watch, "the guarded transaction"); err != nil {
		return fmt.Errorf("a claim: %w", err)
	}
	// The row lock is the proof, even without the gate.
	if err := s.rowIsLocked(ctx, b, held.Resource); err != nil {
		return err
	}
	return errors.Join(first.Commit(ctx), next.ends(ctx))
}

// rowIsLocked bypasses the gate and checks whether the guard holds the fence's row.
func (s *scratch) rowIsLocked(ctx context.Context, conn *pgx.Conn, resource string) error {
	_, err := conn.Exec(ctx, s.sql(`SELECT 1 FROM fencepost.fence WHERE resource = $1 FOR NO KEY UPDATE NOWAIT`), resource)
	if err := wantCode(err, "55P03"); err != nil {
		return fmt.Errorf("the fence's row, which the guard locked FOR SHARE: %w", err)
	}
	return nil
}

// overtaken makes a guard meet a claim that is about to be committed.
func (s *scratch) overtaken(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	old := s.claimOf("overtaken", 1)
	if err := s.raise(ctx, a, old); err != nil {
		return err
	}
	newer, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	if err := s.raise(ctx, newer, s.claimOf("overtaken", 2)); err != nil {
		return err
	}
	guarded, err := inTx(ctx, b)
	if err != nil {
		return err
	}
	late := t.start(ctx, func(ctx context.Context) error { return s.enter(ctx, guarded, old) })
	if err := late.waits(s.watch, "the claim"); err != nil {
		return err
	}
	if err := newer.Commit(ctx); err != nil {
		return err
	}
	refused := late.ends(ctx)
	if err := wantCode(refused, codeStale); err != nil {
		return err
	}
	if err := staleDetail(refused, "2"); err != nil {
		return err
	}
	if _, err := guarded.Exec(ctx, `SELECT 1`); code(err) != "25P02" {
		return fmt.Errorf("the transaction goes on after the refusal: %w", orNil(err))
	}
	if err := guarded.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("COMMIT after the refusal: %w", orNil(err))
	}
	return nil
}

// staleDetail reads the DETAIL of a refusal.
func staleDetail(err error, current string) error {
	var server *pgconn.PgError
	var detail struct{ Current string }
	if !errors.As(err, &server) {
		return err
	}
	if json.Unmarshal([]byte(server.Detail), &detail) != nil || detail.Current != current {
		return fmt.Errorf("the refusal came with the detail %q", server.Detail)
	}
	return nil
}

// snapshot guards in a transaction whose snapshot is older than the claim.
func (s *scratch) snapshot(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	if err := s.raise(ctx, a, s.claimOf("snapshot", 1)); err != nil {
		return err
	}
	tx, err := b.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(`SELECT token FROM fencepost.fence`)); err != nil {
		return err
	}
	held := s.claimOf("snapshot", 2)
	if err := s.raise(ctx, a, held); err != nil {
		return err
	}
	return wantCode(s.enter(ctx, tx, held), "40001")
}

// protection protects a table, and writes to it in each way.
func (s *scratch) protection(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	protected := s.app() + ".protected"
	for _, sql := range []string{
		`CREATE TABLE ` + protected +
			` (id text PRIMARY KEY, value text NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0)`,
		s.sql(`SELECT fencepost.protect('` + protected + `', '` + s.schema + `', 'protection-', '{id}')`),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	insert := `INSERT INTO ` + protected + ` (id, value) VALUES ('1', 'first')`
	_, err = conn.Exec(ctx, insert)
	if err := wantCode(err, codeNotEntered); err != nil {
		return fmt.Errorf("a write without a claim: %w", err)
	}
	_, err = conn.Exec(ctx, `TRUNCATE `+protected)
	if err := wantCode(err, codeNotEntered); err != nil {
		return fmt.Errorf("TRUNCATE: %w", err)
	}
	held := s.claimOf("protection-1", 7)
	if err := s.raise(ctx, conn, held); err != nil {
		return err
	}
	tx, err := inTx(ctx, conn)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, tx, held); err != nil {
		return err
	}
	var stamped int64
	if err := tx.QueryRow(ctx, insert+` RETURNING last_fencing_token`).Scan(&stamped); err != nil {
		return fmt.Errorf("a write under a claim: %w", err)
	}
	if stamped != 7 {
		return fmt.Errorf("a write under token 7 was stamped %d", stamped)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return s.verified(ctx, conn, protected)
}

// verified checks whether verify finds the protection as protect made it.
func (s *scratch) verified(ctx context.Context, conn *pgx.Conn, table string) error {
	rows, _ := conn.Query(ctx, s.sql(`SELECT problem FROM fencepost.verify() WHERE protected = $1`), table)
	problems, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("of a protection that has just been made verify says: %q", problems)
	}
	return err
}
