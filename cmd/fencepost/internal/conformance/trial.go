package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// trial is the connections of one check and the statements that run on them. All of it ends with the check.
type trial struct {
	config *pgx.ConnConfig
	conns  []*pgx.Conn
	stop   []context.CancelFunc
	beside sync.WaitGroup
}

func newTrial(config *pgx.ConnConfig) *trial { return &trial{config: config} }

// conn opens a connection.
func (t *trial) conn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, t.config.Copy())
	if err == nil {
		t.conns = append(t.conns, conn)
	}
	return conn, err
}

// two opens two connections, and three opens one more.
func (t *trial) two(ctx context.Context) (a, b *pgx.Conn, err error) {
	if a, err = t.conn(ctx); err == nil {
		b, err = t.conn(ctx)
	}
	return a, b, err
}

func (t *trial) three(ctx context.Context) (a, b, c *pgx.Conn, err error) {
	if a, b, err = t.two(ctx); err == nil {
		c, err = t.conn(ctx)
	}
	return a, b, c, err
}

// end cancels what still runs, and closes the connections.
func (t *trial) end() {
	for _, stop := range t.stop {
		stop()
	}
	t.beside.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, conn := range t.conns {
		_ = conn.Close(ctx)
	}
}

// pending is a statement that runs on a connection that nothing else uses meanwhile.
type pending struct {
	done chan struct{}
	err  error
}

// start starts a statement.
func (t *trial) start(ctx context.Context, do func(ctx context.Context) error) *pending {
	ctx, stop := context.WithCancel(ctx)
	t.stop = append(t.stop, stop)
	p := &pending{done: make(chan struct{})}
	t.beside.Go(func() {
		defer close(p.done)
		p.err = do(ctx)
	})
	return p
}

// waits returns nil if the statement has not ended after the watch time.
func (p *pending) waits(watch time.Duration, whatFor string) error {
	timer := time.NewTimer(watch)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.done:
	}
	if p.err != nil {
		return fmt.Errorf("it did not wait for %s, and failed: %w", whatFor, p.err)
	}
	return fmt.Errorf("it did not wait for %s", whatFor)
}

// ends waits for the statement to end, and returns its error.
func (p *pending) ends(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("it went on waiting: %w", ctx.Err())
	}
}

// code returns the SQLSTATE of a server's error, or "" for any other error.
func code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// wantCode checks whether a server refused as it should.
func wantCode(err error, want string) error {
	switch {
	case err == nil:
		return fmt.Errorf("it was not refused: SQLSTATE %s was to come", want)
	case code(err) != want:
		return fmt.Errorf("refused otherwise than by SQLSTATE %s: %w", want, err)
	}
	return nil
}

// inTx runs statements in a transaction and leaves it open.
func inTx(ctx context.Context, conn *pgx.Conn, statements ...string) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for _, sql := range statements {
		if err == nil {
			_, err = tx.Exec(ctx, sql)
		}
	}
	return tx, err
}
