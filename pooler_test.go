package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// pooled sets up a store behind PgBouncer in transaction mode, with four server connections.
func pooled(t *testing.T, mode pgx.QueryExecMode) (b *bundle, behind *pgxpool.Pool) {
	t.Helper()
	address := testenv.Database(t)
	return pooledBy(t, testenv.PgBouncer(t, address, &services.PgBouncerOptions{PoolSize: 4}), address, mode)
}

func pooledBy(
	t *testing.T,
	pooler *services.PgBouncer,
	address string,
	mode pgx.QueryExecMode,
) (b *bundle, behind *pgxpool.Pool) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pooler.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 16
	behind, err = pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	b = setupOn(t, testenv.PoolOn(t, address), testenv.Redis(t), fencepost.Options{})
	if b.store, err = fencepost.New(behind, b.rdb, &b.opts); err != nil {
		t.Fatal(err)
	}
	b.table = table(t, b.store)
	return b, behind
}

// Case 22: the exec modes that keep no named statement on the server work behind a pooler in transaction mode, without
// an error in 500 calls, and the next user of a connection sees none of their settings.
func TestCase22_TransactionPoolerServesTheModesWithoutNamedStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b, behind := pooled(t, mode)
			callAll(t, b)
			for range 8 {
				var idle, user, statement, entered string
				err := behind.QueryRow(t.Context(), `SELECT current_setting('idle_in_transaction_session_timeout'),
					current_setting('tcp_user_timeout'), current_setting('statement_timeout'),
					coalesce(current_setting('fencepost.entered', true), '')`).Scan(&idle, &user, &statement, &entered)
				if err != nil {
					t.Fatal(err)
				}
				if idle != "0" || user != "0" || statement != "0" || entered != "" {
					t.Errorf("a setting reached the next user: %q %q %q %q", idle, user, statement, entered)
				}
			}
		})
	}
}

// callAll makes 504 calls from 8 goroutines, of every kind.
func callAll(t *testing.T, b *bundle) {
	t.Helper()
	const workers, rounds = 8, 9
	exec(t, b.pool, `INSERT INTO app.invoice (id) SELECT 'w' || n FROM generate_series(0, $1) AS n`, workers-1)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			key := fencepost.Key{fmt.Sprintf("w%d", w)}
			for round := range rounds {
				if err := callEach(t.Context(), b, key, fmt.Sprint(round)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for w := range workers {
		if got := b.read(t, fmt.Sprintf("w%d", w)).Value; got != fmt.Sprint(rounds-1)+" in a transaction" {
			t.Errorf("row of worker %d: %q", w, got)
		}
	}
}

// callEach makes seven calls.
func callEach(ctx context.Context, b *bundle, key fencepost.Key, value string) error {
	l, err := b.store.Acquire(ctx, "invoice-"+key[0].(string), nil)
	if err != nil {
		return err
	}
	if _, err := b.table.Stamp(ctx, l, key); err != nil {
		return err
	}
	for range 2 {
		if err := b.table.Update(ctx, l, key, fencepost.Set{"value": value}); err != nil {
			return err
		}
		if row, err := b.table.Get(ctx, l, key); err != nil || row.Value != value {
			return fmt.Errorf("read %q: %w", row.Value, err)
		}
	}
	err = b.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = $2`, value+" in a transaction", key[0])
		return err
	}, l)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// Case 22: modes that need a statement from an earlier round trip cannot work behind such a pooler, and the error says
// what to set.
func TestCase22_TheModesThatLeaveStatementsAreToldWhatToSet(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b, _ := pooled(t, mode)
			for _, err := range firstComplaints(t, b) {
				if !strings.Contains(err.Error(), "default_query_exec_mode") {
					t.Errorf("the error names no setting: %v", err)
				}
			}
		})
	}
}

// Case 22: a pooler that keeps track of named statements also serves the default mode. Older poolers have no such
// setting.
func TestCase22_APoolerThatKeepsStatementsServesTheDefaultMode(t *testing.T) {
	t.Parallel()
	address := testenv.Database(t)
	pooler := testenv.PgBouncer(t, address, &services.PgBouncerOptions{PoolSize: 4, Statements: 200})
	b, _ := pooledBy(t, pooler, address, pgx.QueryExecModeCacheStatement)
	if !pooler.KeepStatements() {
		firstComplaints(t, b) // the control
		return
	}
	if told := complaints(t, b); len(told) != 0 {
		t.Errorf("it keeps statements, and yet: %v", told)
	}
}

// firstComplaints repeats the calls until there are complaints. There are none as long as the pooler happens to serve
// each client with the server connection that has its statements.
func firstComplaints(t *testing.T, b *bundle) []error {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		if told := complaints(t, b); len(told) > 0 {
			return told
		}
	}
	t.Fatal("it worked: nothing was tested")
	return nil
}

// complaints returns the errors of 8 goroutines that keep reading and writing.
func complaints(t *testing.T, b *bundle) (told []error) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			key := fencepost.Key{fmt.Sprint(1 + w%3)}
			for range 10 {
				l, err := b.store.Acquire(t.Context(), "invoice-"+key[0].(string), nil)
				if err == nil {
					_, read := b.table.Get(t.Context(), l, key)
					err = errors.Join(read, b.table.Update(t.Context(), l, key, fencepost.Set{"value": "x"}), l.Release(t.Context()))
				}
				if err != nil {
					mu.Lock()
					told = append(told, err)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return told
}
