package main

import (
	"context"
	"encoding/csv"
	"errors"
	"io"

	"github.com/fencepost-pg/fencepost"
)

// importCSV reads lines "customer,id,cents" and writes one batch for each customer, whose rows belong to one resource.
// A batch is written whole or not at all. An import that failed is run again.
func (a *app) importCSV(ctx context.Context, file io.Reader) error {
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = 3
	records, err := lines.ReadAll()
	if err != nil {
		return err
	}
	batches := make(map[string][]fencepost.Change)
	for _, r := range records {
		key := fencepost.Key{r[0], r[1]}
		resource, err := a.charges.Resource(key)
		if err != nil {
			return err
		}
		batches[resource] = append(batches[resource], fencepost.Change{Key: key, Set: fencepost.Set{"cents": r[2]}})
	}
	var errs []error
	for resource, batch := range batches {
		errs = append(errs, a.store.With(ctx, resource, nil, func(ctx context.Context, l *fencepost.Lease) error {
			_, err := a.charges.UpsertBatch(ctx, l, batch, nil)
			return err
		}))
	}
	return errors.Join(errs...)
}
