package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
)

// Invoice is a row of app.invoice.
type Invoice struct {
	ID, Status string
	Cents      int64
}

// Charge is what the service reads of a row of app.charge.
type Charge struct{ Customer, ID string }

// app is what the parts of the service share. It is safe for concurrent use.
type app struct {
	pool     *pgxpool.Pool
	client   *redis.Client
	store    *fencepost.Store
	invoices *fencepost.Table[Invoice]
	charges  *fencepost.Table[Charge]
	mail     func(ctx context.Context, id int64, event string) error // id is the same if an event is sent again
}

// open connects as the application's role. migrate has made the tables before.
func open(ctx context.Context, databaseURL, redisURL string) (*app, error) {
	address, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	a := &app{pool: pool, client: redis.NewClient(address), mail: printMail}
	var errs [3]error
	a.store, errs[0] = fencepost.New(a.pool, a.client, &fencepost.Options{Namespace: "billing"})
	a.invoices, errs[1] = fencepost.NewTable[Invoice](ctx, a.store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"}, Resource: fencepost.PerRow("invoice:"),
	})
	a.charges, errs[2] = fencepost.NewTable[Charge](ctx, a.store, fencepost.TableSpec{
		Schema: "app", Name: "charge", Key: []string{"customer", "id"},
		Resource: fencepost.PerGroup("customer:", "customer"),
	})
	if err := errors.Join(errs[:]...); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *app) close() {
	_ = a.client.Close()
	a.pool.Close()
}

func printMail(_ context.Context, id int64, event string) error {
	_, err := fmt.Printf("mail %d: %s\n", id, event)
	return err
}
