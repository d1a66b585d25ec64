package main

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// slots are a semaphore: all processes together send three mails at a time. Each row that is being sent belongs to a
// slot.
var slots = []string{"mail:0", "mail:1", "mail:2"}

// work delivers with n workers until ctx ends and each of them has given its slot back.
func (a *app) work(ctx context.Context, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := a.drain(ctx); err != nil && ctx.Err() == nil {
					log.Println("deliver:", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	all.Wait()
}

// drain acquires the first slot that is free, delivers the rows that are waiting, and releases the slot.
func (a *app) drain(ctx context.Context) (err error) {
	slot, err := a.store.AcquireAny(ctx, slots, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slot.Release(ctx)) }()
	ctx, cancel := slot.Bind(ctx) // ends with ctx, and with the lease
	defer cancel()
	for err == nil && ctx.Err() == nil {
		var id int64
		var event string
		if id, event, err = a.take(ctx, slot); err == nil {
			err = a.send(ctx, slot, id, event)
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // there is nothing to deliver
	}
	return err
}

// take gives a row to the slot, guarded by the slot. First comes a row that an earlier holder of the slot left in the
// middle. Nobody knows whether it was sent, so it is sent again.
func (a *app) take(ctx context.Context, slot *fencepost.Lease) (id int64, event string, err error) {
	err = a.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			UPDATE app.outbox SET slot = $1 WHERE id = (
				SELECT id FROM app.outbox WHERE sent_at IS NULL AND (slot IS NULL OR slot = $1)
				ORDER BY slot NULLS LAST, id LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING id, event`, slot.Resource()).Scan(&id, &event)
	}, slot)
	return id, event, err
}

// send looks at the lease right before the effect, which PostgreSQL cannot refuse. Then it marks the row, guarded by
// the slot, and also while the process shuts down.
func (a *app) send(ctx context.Context, slot *fencepost.Lease, id int64, event string) error {
	if err := slot.Err(); err != nil {
		return err
	}
	if err := a.mail(ctx, id, event); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return a.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.outbox SET sent_at = now() WHERE id = $1`, id)
		return err
	}, slot)
}
