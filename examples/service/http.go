package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

var errPaid = errors.New("the invoice is paid already")

// serve answers until ctx ends, and then until the requests under way have been answered.
func (a *app) serve(ctx context.Context, addr string) error {
	server := &http.Server{Addr: addr, Handler: a.handler(), ReadHeaderTimeout: patience}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return server.Shutdown(ctx)
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}/payment", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		paid, err := a.pay(ctx, r.PathValue("id"), r.Header.Get("Idempotency-Key"))
		if err != nil {
			http.Error(w, err.Error(), status(err))
			return
		}
		_ = json.NewEncoder(w).Encode(paid)
	})
	return mux
}

// pay pays an invoice once for each key, and writes an event: both are committed, or neither. A repeat with the same
// key, from any process, gets the first result.
func (a *app) pay(ctx context.Context, id, key string) (Invoice, error) {
	done, err := fencepost.DoOnce(ctx, a.store, "invoice:"+id, key, "pay "+id,
		func(ctx context.Context, tx pgx.Tx) (paid Invoice, err error) {
			err = a.invoices.In(tx).Modify(ctx, fencepost.Key{id}, func(row *Invoice) error {
				if row.Status == "paid" {
					return errPaid
				}
				row.Status = "paid"
				paid = *row
				return nil
			})
			if err == nil {
				_, err = tx.Exec(ctx, `INSERT INTO app.outbox (event) VALUES ($1)`, "invoice "+id+" was paid")
			}
			return paid, err
		})
	return done.Value, err
}

// status says what the client may do. After 503 and 504 it sends the same request again, with the same key.
func status(err error) int {
	is := func(target error) bool { return errors.Is(err, target) }
	switch notEntered := (*fencepost.NotEnteredError)(nil); {
	case errors.As(err, &notEntered): // matches ErrStale too, and is a fault of this program: the wrong resource
		return http.StatusInternalServerError
	case is(fencepost.ErrOutcomeUnknown):
		return http.StatusGatewayTimeout
	case is(fencepost.ErrHeld), is(fencepost.ErrUnavailable), is(fencepost.ErrStale), is(fencepost.ErrLost):
		return http.StatusServiceUnavailable
	case is(fencepost.ErrNotFound), is(errPaid), is(fencepost.ErrKeyReused), is(fencepost.ErrInvalid):
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}
