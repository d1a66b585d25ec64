package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// RunWorker plays one worker: it reads its script from in, works, and writes reports to out. It reports the errors of
// its work; the error that it returns says that a report could not be written. If in or ctx ends, the work ends at
// once.
//
// RunWorker leaves a goroutine behind that reads in, so the process should end.
func RunWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &worker{out: json.NewEncoder(out), cue: make(chan struct{}, 1)}
	lines := json.NewDecoder(in)
	if err := lines.Decode(&w.script); err != nil {
		return fmt.Errorf("read the script: %w", err)
	}
	go func() {
		cancel(process.Orders(lines, func(any) error {
			w.cue <- struct{}{}
			return nil
		}))
	}()
	if err := w.work(ctx); err != nil {
		return w.report(report{What: isFailed, Error: err.Error()})
	}
	return nil
}

type worker struct {
	script script
	out    *json.Encoder
	cue    chan struct{}

	pool  *pgxpool.Pool
	store *fencepost.Store
}

func (w *worker) report(r report) error {
	if err := w.out.Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// work opens the connections and does the work.
func (w *worker) work(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(w.script.PostgresURL)
	if err != nil {
		return errors.New("the PostgreSQL address is not valid") // the cause quotes it
	}
	config.ConnConfig.Database = w.script.Database
	fence.Notices(config.ConnConfig)
	if w.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	defer w.pool.Close()
	address, err := redis.ParseURL(w.script.RedisURL)
	if err != nil {
		return errors.New("the Redis address is not valid")
	}
	client := redis.NewClient(address)
	defer func() { _ = client.Close() }() // the process ends
	w.store, err = fencepost.New(w.pool, client, &fencepost.Options{
		Namespace: w.script.Namespace, TTL: w.script.TTL, Label: w.script.Name,
		CounterIdle: 24 * time.Hour, // the least: nobody may be left to remove it
	})
	if err != nil {
		return err
	}
	return w.payInvoice(ctx)
}

// payInvoice does the job as many services do it: take the lease, read, compute for a while, write.
func (w *worker) payInvoice(ctx context.Context) error {
	lease, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	claim := lease.Claim()
	if err := w.report(report{What: isGranted, Token: claim.Token}); err != nil {
		return err
	}
	var value string
	if err := w.pool.QueryRow(ctx, `SELECT value FROM app.invoice WHERE id = $1`, invoiceID).Scan(&value); err != nil {
		return fmt.Errorf("read the invoice: %w", err)
	}
	if err := w.report(report{What: isRead, Value: value}); err != nil {
		return err
	}
	if w.script.AwaitCue {
		select {
		case <-w.cue:
		case <-ctx.Done():
			return fmt.Errorf("wait for the cue: %w", context.Cause(ctx))
		}
	}
	// The point of the demo: the worker looks neither at its lease nor at the lease's context before the write.
	written, err := w.write(ctx, claim)
	if err != nil {
		return err
	}
	if err := w.report(written); err != nil {
		return err
	}
	return w.handBack(ctx, lease)
}

// acquire takes the lease. Before it waits for another holder, it reports that.
func (w *worker) acquire(ctx context.Context) (*fencepost.Lease, error) {
	lease, err := w.store.TryAcquire(ctx, resource, nil)
	var held *fencepost.HeldError
	if !errors.As(err, &held) {
		return lease, err
	}
	if err := w.report(report{What: isHeld, Holder: held.Label}); err != nil {
		return nil, err
	}
	return w.store.Acquire(ctx, resource, nil)
}

// write writes the row under a claim value and returns the outcome.
func (w *worker) write(ctx context.Context, c fencepost.Claim) (report, error) {
	value := paidBy(w.script.Name)
	var err error
	switch w.script.Writer {
	case plain:
		_, err = w.pool.Exec(ctx, `UPDATE app.invoice SET value = $1, last_fencing_token = $2 WHERE id = $3`,
			value, int64(c.Token), invoiceID)
	case guarded:
		err = w.writeGuarded(ctx, c, value)
	default:
		err = fmt.Errorf("no such writer: %q", w.script.Writer)
	}
	var stale *fencepost.StaleError
	switch {
	case err == nil:
		return report{What: isAccepted, Value: value}, nil
	case errors.As(err, &stale) && errors.Is(err, fencepost.ErrStale):
		return report{What: isRefused, Token: stale.Token, Current: stale.Current}, nil
	default:
		return report{}, fmt.Errorf("write the invoice: %w", err)
	}
}

func (w *worker) writeGuarded(ctx context.Context, c fencepost.Claim, value string) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // without effect once committed
	if err := fence.Enter(ctx, tx, c); err != nil {
		return err
	}
	if err := fence.Update(ctx, tx, invoices(), c.Token, fence.Key{invoiceID}, fence.Set{"value": value}); err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit(ctx))
}

// handBack checks the lease only now, and releases it.
func (w *worker) handBack(ctx context.Context, lease *fencepost.Lease) error {
	err := lease.Release(ctx)
	var lost *fencepost.LostError
	switch {
	case errors.As(err, &lost):
		return w.report(report{What: isOver, Lost: string(lost.Reason)})
	case err != nil:
		return fmt.Errorf("release the lease: %w", err)
	}
	return w.report(report{What: isOver})
}
