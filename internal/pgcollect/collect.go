// Package pgcollect deletes the fences of resources that nobody has claimed for a long time, and keeps their highest
// token as the floor of their bucket. The SQL functions fencepost.collectable and fencepost.collect do the work; what
// makes it safe is described at the table fencepost.floor, in the first migration.
package pgcollect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// MinAge is the lowest bound of age.
const MinAge = time.Hour

// page is how many fences are listed at once. Those of one bucket, a thousandth, are deleted together.
const page = 50_000

// heldPage is how many resources one call of Held is about, and together how many fences one transaction deletes at
// most: each takes a lock in the server's shared memory.
const (
	heldPage = 500
	together = 500
)

// Options are fence.CollectOptions.
type Options struct {
	OlderThan time.Duration
	Namespace string
	Held      func(ctx context.Context, resources []string) ([]bool, error)
	Limit     int
	DryRun    bool
	Progress  func(Collected)
}

// Collected is fence.Collected.
type Collected struct {
	Old       int
	Held      int
	Left      int
	Collected int
}

func (o *Options) check() error {
	switch {
	case o == nil || o.Held == nil:
		return pgerr.Invalidf("Held is missing: who asks which resources are held?")
	case o.OlderThan < MinAge:
		return pgerr.Invalidf("OlderThan %v is below %v", o.OlderThan, MinAge)
	case strings.Contains(o.Namespace, ":") || !encoding.IsText(o.Namespace):
		return pgerr.Invalidf("the namespace %q", o.Namespace)
	case o.Limit < 0:
		return pgerr.Invalidf("Limit %d is negative", o.Limit)
	}
	return nil
}

// Collect is fence.Collect.
func Collect(ctx context.Context, conn *pgx.Conn, opts *Options) (Collected, error) {
	if err := opts.check(); err != nil {
		return Collected{}, err
	}
	if err := pgsession.CheckIdle(conn); err != nil {
		return Collected{}, err
	}
	c := &collection{conn: conn, opts: opts}
	err := c.run(ctx)
	return c.done, err
}

// collection is one call of Collect.
type collection struct {
	conn *pgx.Conn
	opts *Options
	done Collected
}

func (c *collection) run(ctx context.Context) error {
	after := ""
	if c.opts.Namespace != "" {
		after = c.opts.Namespace + ":"
	}
	for {
		names, buckets, err := c.list(ctx, after)
		if err != nil {
			return err
		}
		if err := c.page(ctx, names, buckets); err != nil || len(names) < page || c.full() {
			return err
		}
		after = names[len(names)-1]
	}
}

func (c *collection) full() bool { return c.opts.Limit > 0 && c.done.Collected >= c.opts.Limit }

const listSQL = `SELECT resource, bucket
	FROM fencepost.collectable($1::text, $2::text, $3::text::interval, $4::integer)`

// list returns the next old fences, with their buckets.
func (c *collection) list(ctx context.Context, after string) (names []string, buckets []int, err error) {
	var before *string
	if c.opts.Namespace != "" {
		end := c.opts.Namespace + ";" // the character after the colon
		before = &end
	}
	err = pgsession.Pipeline(ctx, c.conn, "list old fences", func(b *pgx.Batch) {
		b.Queue(listSQL, after, before, interval(c.opts.OlderThan), page).Query(func(rows pgx.Rows) error {
			var name string
			var bucket int
			_, err := pgx.ForEachRow(rows, []any{&name, &bucket}, func() error {
				names, buckets = append(names, name), append(buckets, bucket)
				return nil
			})
			return err
		})
	})
	return names, buckets, notGranted(err)
}

// page collects those of the fences that are not held, bucket by bucket.
func (c *collection) page(ctx context.Context, names []string, buckets []int) error {
	free := map[int][]string{}
	for begin := 0; begin < len(names); begin += heldPage {
		some := names[begin:min(begin+heldPage, len(names))]
		held, err := c.opts.Held(ctx, slices.Clone(some))
		if err == nil && len(held) != len(some) {
			err = pgerr.Invalidf("Held answered for %d of %d resources", len(held), len(some))
		}
		if err != nil {
			return err
		}
		for i, name := range some {
			if held[i] {
				c.done.Held++
			} else {
				free[buckets[begin+i]] = append(free[buckets[begin+i]], name)
			}
		}
		c.done.Old += len(some)
		c.progress()
	}
	if c.opts.DryRun {
		return nil
	}
	busy, err := c.buckets(ctx, free)
	if err == nil && len(busy) > 0 { // a little later
		busy, err = c.buckets(ctx, busy)
	}
	for _, names := range busy {
		c.done.Left += len(names)
	}
	c.progress()
	return err
}

func (c *collection) progress() {
	if c.opts.Progress != nil {
		c.opts.Progress(c.done)
	}
}

// buckets collects fences by bucket, and returns those whose bucket was busy.
func (c *collection) buckets(ctx context.Context, free map[int][]string) (busy map[int][]string, err error) {
	busy = map[int][]string{}
	for bucket, names := range free {
		for some := range slices.Chunk(names, together) {
			if c.full() {
				return nil, nil
			}
			if c.opts.Limit > 0 {
				some = some[:min(len(some), c.opts.Limit-c.done.Collected)]
			}
			n, wasBusy, err := c.collect(ctx, bucket, some)
			if err != nil {
				return nil, err
			}
			if wasBusy {
				busy[bucket] = append(busy[bucket], some...)
				continue
			}
			c.done.Collected += n
			c.done.Left += len(some) - n
			c.progress()
		}
	}
	return busy, nil
}

const collectSQL = `SELECT collected, busy FROM fencepost.collect($1::integer, $2::text[], $3::text::interval)`

func (c *collection) collect(ctx context.Context, bucket int, names []string) (collected int, busy bool, err error) {
	err = pgsession.Pipeline(ctx, c.conn, "collect fences", func(b *pgx.Batch) {
		b.Queue(collectSQL, bucket, names, interval(c.opts.OlderThan)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&collected, &busy) })
	})
	return collected, busy, notGranted(err)
}

// notGranted adds to a refused privilege what to do.
func notGranted(err error) error {
	if server, ok := pgerr.ServerError(err); ok && server.Code == pgerr.CodeInsufficientPrivilege {
		return fmt.Errorf("%w: this role may not collect fences: the owner of the schema grants that with "+
			"SELECT fencepost.grant_collector('role'): %w", pgerr.ErrUnavailable, err)
	}
	return pgerr.NotMigrated(err)
}

// interval is a duration as PostgreSQL's interval. PostgreSQL 13 and 14 accept no number above 2^31 - 1 there.
func interval(d time.Duration) string {
	return fmt.Sprintf("%d:%02d:%02d", d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second)
}
