package conformance

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// now makes claims that wait for nobody, by the function that a store calls first.
func (s *scratch) now(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	claim := func(db pgxQuerier, c fence.Claim) (claimed *bool, err error) {
		err = db.QueryRow(ctx, s.sql(`SELECT claimed FROM fencepost.claim_now($1::text, $2::bigint, $3::uuid)`),
			c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&claimed)
		return claimed, err
	}
	held := s.claimOf("now", 5)
	if err := s.raise(ctx, a, s.claimOf("now", 1)); err != nil { // the fence is there, as usual
		return err
	}
	if claimed, err := claim(a, held); err != nil || claimed == nil || !*claimed {
		return fmt.Errorf("a claim above the fence was not made: %w", orRefused(err))
	}
	if claimed, err := claim(b, s.claimOf("now", 4)); err != nil || claimed == nil || *claimed {
		return fmt.Errorf("a claim below the fence was not refused: %w", orNil(err))
	}
	tx, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, tx, held); err != nil {
		return err
	}
	if claimed, err := claim(b, s.claimOf("now", 6)); err != nil || claimed != nil {
		return fmt.Errorf("beside a guarded transaction, which it would have to wait for: %w", orNil(err))
	}
	return tx.Commit(ctx)
}

// orRefused returns err, or, if err is nil, an error for messages.
func orRefused(err error) error {
	if err == nil {
		return errors.New("it was refused")
	}
	return err
}

// marked is what a function returns that claims and opens a guarded transaction.
type marked struct {
	claimed          *bool
	token            *int64
	xid, incarnation *string
}

func (s *scratch) claimMarked(ctx context.Context, db pgxQuerier, c fence.Claim) (m marked, err error) {
	err = db.QueryRow(ctx, s.sql(`SELECT claimed, current, xid, incarnation::text
		FROM fencepost.claim_marked($1::text, $2::bigint, $3::uuid, 'conformance', 60000)`),
		c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&m.claimed, &m.token, &m.xid, &m.incarnation)
	return m, err
}

func (s *scratch) drawMarked(ctx context.Context, db pgxQuerier, c fence.Claim) (m marked, err error) {
	key := fnv.New64a()
	_, _ = key.Write([]byte(c.Resource)) // it never fails
	err = db.QueryRow(ctx, s.sql(`SELECT token, xid, incarnation::text
		FROM fencepost.draw_marked($1::text, $2::uuid, 'conformance', $3::bigint, 60000)`),
		c.Resource, c.Nonce.Hex(), int64(key.Sum64())).Scan(&m.token, &m.xid,
		&m.incarnation) //nolint:gosec // 64 bits are 64 bits
	return m, err
}

// marks claims and writes in one transaction, in both ways, while another one claims: it is told to wait, and nothing
// has been claimed once the transaction was rolled back.
func (s *scratch) marks(
	ctx context.Context, t *trial, name string, call func(context.Context, pgxQuerier, fence.Claim) (marked, error),
) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	if err := s.raise(ctx, a, s.claimOf(name, 3)); err != nil {
		return err
	}
	mine := s.claimOf(name, 4)
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		func(tx pgx.Tx) error { return tx.Commit(ctx) },
	} {
		tx, err := inTx(ctx, a)
		if err != nil {
			return err
		}
		m, err := call(ctx, tx, mine)
		switch {
		case err != nil:
			return err
		case m.token == nil || *m.token != 4 || m.xid == nil:
			return errors.New("it did not claim the token above the fence")
		}
		other, err := call(ctx, b, s.claimOf(name, 5))
		switch {
		case err != nil:
			return fmt.Errorf("another one meanwhile: %w", err)
		case other.claimed != nil || other.token != nil:
			return errors.New("another one claimed meanwhile")
		}
		if err := end(tx); err != nil {
			return err
		}
	}
	return s.enterAlone(ctx, a, mine)
}

// enterAlone enters a claim that is the fence's.
func (s *scratch) enterAlone(ctx context.Context, conn *pgx.Conn, c fence.Claim) error {
	tx, err := inTx(ctx, conn)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, tx, c); err != nil {
		return fmt.Errorf("the claim that was committed: %w", err)
	}
	return tx.Commit(ctx)
}

// lostUpdate reads a row under a claim, and writes what it read: nothing comes in between.
func (s *scratch) lostUpdate(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	const row = "lost"
	if err := s.set(ctx, a, row, 0); err != nil {
		return err
	}
	older, newer := s.claimOf(row, 1), s.claimOf(row, 2)
	if err := s.raise(ctx, a, older); err != nil {
		return err
	}
	write := `UPDATE ` + s.table().String() + ` SET value = $1 WHERE id = '` + row + `'`
	first, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, first, older); err != nil {
		return err
	}
	// The newer holder claims while the older one writes, so it waits, and reads what was written.
	claim := t.start(ctx, func(ctx context.Context) error { return s.raise(ctx, b, newer) })
	if err := claim.waits(s.watch, "the transaction under the older claim"); err != nil {
		return err
	}
	if _, err := first.Exec(ctx, write, "older"); err != nil {
		return err
	}
	if err := errors.Join(first.Commit(ctx), claim.ends(ctx)); err != nil {
		return err
	}
	if err := s.wantValue(ctx, b, row, "older"); err != nil {
		return fmt.Errorf("what the newer holder reads: %w", err)
	}
	// From now on the older holder is refused, so the newer one writes over what it has read.
	late, err := inTx(ctx, a)
	if err != nil {
		return err
	}
	if err := wantCode(s.enter(ctx, late, older), codeStale); err != nil {
		return fmt.Errorf("a write under the older claim, after the newer one: %w", err)
	}
	if err := late.Rollback(ctx); err != nil {
		return err
	}
	last, err := inTx(ctx, b)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, last, newer); err != nil {
		return err
	}
	if _, err := last.Exec(ctx, write, "newer"); err != nil {
		return err
	}
	if err := last.Commit(ctx); err != nil {
		return err
	}
	return s.wantValue(ctx, a, row, "newer")
}
