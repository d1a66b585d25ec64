package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/fence"
)

// tableUpdate measures Table.Update, which guards and commits in one round trip, beside a plain UPDATE of the same
// column by the same primary key.
func tableUpdate(ctx context.Context, s Servers) (measure.Comparison, error) {
	c, err := besideTable(ctx, s, "table", 0.85, byHand{name: "plain UPDATE by primary key", do: plainByKey})
	if err != nil {
		return c, err
	}
	sent, err := sentTableUpdate(ctx, s)
	c.Candidates = append(c.Candidates, sent)
	return c, err
}

// besideAdvisory measures it beside the lock that one takes by hand, in four round trips and pipelined into one.
func besideAdvisory(ctx context.Context, s Servers) (measure.Comparison, error) {
	const lock = `SELECT pg_advisory_xact_lock($1, 1)`
	args := func(worker, _ int64) []any { return []any{worker} }
	return besideTable(ctx, s, "advisory", 1.5,
		byHand{name: "BEGIN, pg_advisory_xact_lock, UPDATE, COMMIT in four round trips", do: locked(lock, args)},
		byHand{name: "the same, pipelined into one", do: lockedPipelined(lock, args)})
}

// besideForUpdate measures it beside the row lock that one takes by hand.
func besideForUpdate(ctx context.Context, s Servers) (measure.Comparison, error) {
	const lock = `SELECT value FROM bench.forupdate_hand WHERE worker = $1 AND id = $2 FOR UPDATE`
	args := func(worker, id int64) []any { return []any{worker, id} }
	return besideTable(ctx, s, "forupdate", 1.5,
		byHand{name: "BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT in four round trips", do: locked(lock, args)},
		byHand{name: "the same, pipelined into one", do: lockedPipelined(lock, args)})
}

// byHand is how one row is updated without this library.
type byHand struct {
	name string
	do   func(ctx context.Context, s Servers, update, value string, worker, id int64) error
}

// besideTable puts Table.Update beside what is done by hand; the first of these is what it is compared with.
func besideTable(
	ctx context.Context,
	s Servers,
	name string,
	target float64,
	hands ...byHand,
) (measure.Comparison, error) {
	hand, err := makeShared(ctx, s, name+"_hand")
	if err != nil {
		return measure.Comparison{}, err
	}
	update := `UPDATE ` + hand.String() + ` SET value = $1 WHERE worker = $2 AND id = $3`
	c := measure.Comparison{
		Title: fmt.Sprintf("update one column of a row by primary key, %d goroutines, each its own rows and lease", Workers),
	}
	for _, h := range hands {
		c.Candidates = append(
			c.Candidates,
			measure.Candidate{Name: h.name, Worker: func(worker int) func(context.Context) error {
				at := newWalk(worker)
				return func(ctx context.Context) error {
					at.next()
					return h.do(ctx, s, update, strconv.FormatInt(at.pass, 10), int64(worker), at.id)
				}
			}},
		)
	}
	guarded, err := tableCandidate(ctx, s, name, target)
	c.Candidates = append(c.Candidates, guarded)
	return c, err
}

// tableCandidate holds a lease for each worker.
func tableCandidate(ctx context.Context, s Servers, name string, target float64) (none measure.Candidate, err error) {
	table, leases, err := leasedTable(ctx, s, s.Pool, name)
	return measure.Candidate{
		Name:   "Table.Update under the guard",
		Target: target,
		Worker: func(worker int) func(context.Context) error {
			at := newWalk(worker)
			return func(ctx context.Context) error {
				at.next()
				set := fencepost.Set{"value": strconv.FormatInt(at.pass, 10)}
				return table.Update(ctx, leases[worker], fencepost.Key{worker, at.id}, set)
			}
		},
	}, err
}

// sentTableUpdate sends the statement of Table.Update by hand, under leases that are held meanwhile.
func sentTableUpdate(ctx context.Context, s Servers) (none measure.Candidate, err error) {
	var table *fencepost.Table[benchRow]
	var leases [Workers]*fencepost.Lease
	return sentCandidate(ctx, s, func(worker int, pool *pgxpool.Pool) error {
		if table == nil {
			if table, leases, err = leasedTable(ctx, s, pool, "sent"); err != nil {
				return err
			}
		}
		insert := `INSERT INTO ` + s.Schema + `.sent_guarded (worker, id, value) VALUES ($1, $2, '0')`
		if _, err := pool.Exec(ctx, insert, worker, recordedID); err != nil {
			return err
		}
		key, set := fencepost.Key{worker, recordedID}, fencepost.Set{"value": recordedValue}
		return table.Update(ctx, leases[worker], key, set)
	})
}

// leasedTable makes a table and acquires a lease for the rows of each worker.
func leasedTable(
	ctx context.Context, s Servers, pool *pgxpool.Pool, name string,
) (table *fencepost.Table[benchRow], leases [Workers]*fencepost.Lease, err error) {
	made, err := makeShared(ctx, s, name+"_guarded")
	if err != nil {
		return nil, leases, err
	}
	store, err := fencepost.New(pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return nil, leases, err
	}
	table, err = fencepost.NewTable[benchRow](ctx, store, fencepost.TableSpec{
		Schema: made.Schema, Name: made.Name, Key: made.Key, Resource: fencepost.PerGroup(name+":", "worker"),
	})
	for i := range leases {
		if err == nil {
			leases[i], err = store.Acquire(ctx, fmt.Sprintf("%s:%d", name, i), nil)
		}
	}
	return table, leases, err
}

// makeShared is makeTable for rows that the workers share out by their key, so that each has a resource.
func makeShared(ctx context.Context, s Servers, name string) (fence.Table, error) {
	t := fence.Table{Schema: s.Schema, Name: name, Key: []string{"worker", "id"}}
	for _, sql := range []string{
		`CREATE SCHEMA IF NOT EXISTS ` + s.Schema,
		`CREATE TABLE ` + t.String() + ` (
			worker bigint, id bigint, value text NOT NULL,
			last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0), PRIMARY KEY (worker, id))
			WITH (fillfactor = 50)`,
		fmt.Sprintf(`INSERT INTO %s (worker, id, value) SELECT i %% %d, i, '0' FROM generate_series(0, %d) AS i`,
			t, Workers, rowCount-1),
		`VACUUM ANALYZE ` + t.String(),
	} {
		if _, err := s.Pool.Exec(ctx, sql); err != nil {
			return t, fmt.Errorf("make the table %s: %w", name, err)
		}
	}
	return t, nil
}

func plainByKey(ctx context.Context, s Servers, update, value string, worker, id int64) error {
	tag, err := s.Pool.Exec(ctx, update, value, worker, id)
	return oneRow(tag.RowsAffected(), err)
}

// locked is a transaction of four statements, each sent after the answer to the one before.
func locked(
	lock string,
	args func(worker, id int64) []any,
) func(context.Context, Servers, string, string, int64, int64) error {
	return func(ctx context.Context, s Servers, update, value string, worker, id int64) error {
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lock, args(worker, id)...); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, update, value, worker, id)
			return oneRow(tag.RowsAffected(), err)
		})
	}
}

// lockedPipelined sends the four together.
func lockedPipelined(
	lock string,
	args func(worker, id int64) []any,
) func(context.Context, Servers, string, string, int64, int64) error {
	return func(ctx context.Context, s Servers, update, value string, worker, id int64) error {
		var b pgx.Batch
		b.Queue(`BEGIN`)
		b.Queue(lock, args(worker, id)...)
		b.Queue(update, value, worker, id)
		b.Queue(`COMMIT`)
		return s.Pool.SendBatch(ctx, &b).Close()
	}
}
