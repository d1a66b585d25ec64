package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// settings sets, for one transaction, the settings that the library sets.
func (s *scratch) settings(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	const (
		local = `SELECT pg_catalog.set_config('fencepost_check.word', 'said', true),
			pg_catalog.set_config('statement_timeout', '71s', true),
			pg_catalog.set_config('lock_timeout', '72s', true),
			pg_catalog.set_config('idle_in_transaction_session_timeout', '73s', true),
			pg_catalog.set_config('tcp_user_timeout', '74s', true), pg_catalog.set_config('synchronous_commit', 'on', true)`
		read = `SELECT coalesce(pg_catalog.current_setting('fencepost_check.word', true), '') ||
			' ' || pg_catalog.current_setting('statement_timeout')`
	)
	tx, err := inTx(ctx, conn, local)
	if err != nil {
		return err
	}
	var during, after string
	if err := tx.QueryRow(ctx, read).Scan(&during); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, read).Scan(&after); err != nil {
		return err
	}
	if during != "said 71s" && during != "said 71000" {
		return fmt.Errorf("within the transaction it reads %q", during)
	}
	if after == during || after[0] != ' ' {
		return fmt.Errorf("after the transaction it still reads %q", after)
	}
	return nil
}

// notices makes the server raise a warning.
func (s *scratch) notices(ctx context.Context, t *trial) error {
	var heard *pgconn.Notice
	config := t.config.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { heard = n }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	t.conns = append(t.conns, conn)
	_, err = conn.Exec(ctx, `DO $$ BEGIN RAISE WARNING USING ERRCODE = '01ZF1', MESSAGE = 'a warning to be heard'; END $$`)
	switch {
	case err != nil:
		return err
	case heard == nil:
		return errors.New("a warning was not heard (client_min_messages?)")
	case heard.SeverityUnlocalized != "WARNING" || heard.Code != "01ZF1" || heard.Routine == "":
		return fmt.Errorf(
			"a warning came as %q, SQLSTATE %q, of routine %q",
			heard.SeverityUnlocalized,
			heard.Code,
			heard.Routine,
		)
	}
	return nil
}

// gate tries the queue in front of an advisory lock. The second session must have arrived before the third, and only
// time can tell. So if a network or server is slow, the check gets a second try with more time.
func (s *scratch) gate(ctx context.Context) (err error) {
	for _, watch := range []time.Duration{s.watch, 5 * s.watch} {
		t := newTrial(s.config)
		err = s.queue(ctx, t, watch)
		t.end()
		if err == nil {
			break
		}
	}
	return err
}

// queue runs three transactions at an advisory lock: one that shares it, one that wants it exclusively, and another one
// that wants to share it.
func (s *scratch) queue(ctx context.Context, t *trial, watch time.Duration) error {
	a, b, c, err := t.three(ctx)
	if err != nil {
		return err
	}
	lock := func(kind string) string {
		return fmt.Sprintf(`SELECT pg_catalog.pg_advisory_xact_lock%s(1179534159, pg_catalog.hashtext('%s'))`, kind, s.schema)
	}
	first, err := inTx(ctx, a, lock("_shared"))
	if err != nil {
		return err
	}
	alone := t.start(ctx, func(ctx context.Context) error { return onlyRun(ctx, b, lock("")) })
	if err := alone.waits(watch, "one that shares the lock"); err != nil {
		return err
	}
	later := t.start(ctx, func(ctx context.Context) error { return onlyRun(ctx, c, lock("_shared")) })
	if err := later.waits(watch, "one that came before it and wants the lock alone"); err != nil {
		return err
	}
	if err := first.Commit(ctx); err != nil {
		return err
	}
	return errors.Join(alone.ends(ctx), later.ends(ctx))
}

// onlyRun runs statements in a transaction of their own.
func onlyRun(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	tx, err := inTx(ctx, conn, statements...)
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// pipeline sends a transaction that fails in the middle, and one that does not.
func (s *scratch) pipeline(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	insert := `INSERT INTO ` + s.table().String() + ` (id, value) VALUES ($1, 'first')`
	send := func(id, then string) error {
		var b pgx.Batch
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		b.Queue(insert, id)
		b.Queue(then)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, &b).Close()
	}
	if err := wantCode(
		send("pipeline-1", `SELECT 1 / (pg_catalog.pg_backend_pid() - pg_catalog.pg_backend_pid())`),
		"22012",
	); err != nil {
		return err
	}
	if conn.PgConn().TxStatus() != 'I' {
		if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
			return err
		}
	}
	if err := send("pipeline-2", `SELECT 1`); err != nil {
		return err
	}
	return errors.Join(s.wantValue(ctx, conn, "pipeline-1", "no row"), s.wantValue(ctx, conn, "pipeline-2", "first"))
}

// limits makes one transaction wait for a row of another one, which is then left idle.
func (s *scratch) limits(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	if err := s.set(ctx, a, "limits", 0); err != nil {
		return err
	}
	lock := `SELECT 1 FROM ` + s.table().String() + ` WHERE id = 'limits' FOR UPDATE`
	holder, err := inTx(ctx, a, lock)
	if err != nil {
		return err
	}
	err = onlyRun(
		ctx,
		b,
		`SELECT pg_catalog.set_config('statement_timeout', '100ms', true), pg_catalog.set_config('lock_timeout', '0', true)`,
		lock,
	)
	if err := wantCode(err, "57014"); err != nil {
		return fmt.Errorf("statement_timeout: %w", err)
	}
	if _, err := b.Exec(ctx, `ROLLBACK`); err != nil {
		return err
	}
	if _, err := holder.Exec(
		ctx,
		`SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '200ms', true)`,
	); err != nil {
		return err
	}
	if err := onlyRun(ctx, b, `SELECT pg_catalog.set_config('lock_timeout', '0', true)`, lock); err != nil {
		return fmt.Errorf("the row of a transaction that is idle for too long: %w", err)
	}
	if err := wantCode(onlyRun(ctx, a, `SELECT 1`), "25P03"); err != nil && !a.IsClosed() {
		return fmt.Errorf("idle_in_transaction_session_timeout: %w", err)
	}
	return nil
}
