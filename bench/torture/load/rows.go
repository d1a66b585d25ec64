package load

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

//go:embed tables.sql
var tables string

// CreateTables creates the rows' table and its journal.
func CreateTables(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, tables); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}

const (
	// PerGroup is how many rows a group has.
	PerGroup = 4
	// Deposit is what each row of the transfers has at the beginning.
	Deposit = 100
	// prefix begins the resources, which are the groups.
	prefix = "part:"
)

// Fill makes the rows that a workload begins with.
func Fill(ctx context.Context, pool *pgxpool.Pool, w Workload, groups int) error {
	if w == Set || w == Lease {
		return nil
	}
	n := 0
	if w == Transfer {
		n = Deposit
	}
	_, err := pool.Exec(ctx, `INSERT INTO torture.part (grp, id, n, mark)
		SELECT 'g' || g, i::text, $3, 'start' FROM generate_series(0, $1 - 1) g, generate_series(0, $2 - 1) i`,
		groups, PerGroup, n)
	if err != nil {
		return fmt.Errorf("fill the tables: %w", err)
	}
	return nil
}

// Part is a row.
type Part struct {
	Grp, ID string
	N       int64
	Mark    string
}

func spec() fencepost.TableSpec {
	return fencepost.TableSpec{
		Schema: "torture", Name: "part", Key: []string{"grp", "id"}, Resource: fencepost.PerGroup(prefix, "grp"),
	}
}

// keyOf returns the key of a row's name, "group/id".
func keyOf(row string) fencepost.Key {
	grp, id, _ := strings.Cut(row, "/")
	return fencepost.Key{grp, id}
}

// resourceOf returns the resource of a row's name.
func resourceOf(row string) string {
	grp, _, _ := strings.Cut(row, "/")
	return prefix + grp
}

// rows reads and writes rows. A fencepost.TableTx is one.
type rows interface {
	Get(ctx context.Context, key fencepost.Key) (Part, error)
	Update(ctx context.Context, key fencepost.Key, set fencepost.Set) error
	Modify(ctx context.Context, key fencepost.Key, fn func(*Part) error) error
	Insert(ctx context.Context, key fencepost.Key, set fencepost.Set) error
	Upsert(ctx context.Context, key fencepost.Key, set fencepost.Set) (bool, error)
	Delete(ctx context.Context, key fencepost.Key) error
	UpdateBatch(ctx context.Context, changes []fencepost.Change, opts *fencepost.BatchOptions) error
}

// underLease are the rows of a table under a lease, each call a transaction of its own.
type underLease struct {
	table *fencepost.Table[Part]
	lease *fencepost.Lease
}

func (r underLease) Get(ctx context.Context, key fencepost.Key) (Part, error) {
	return r.table.Get(ctx, r.lease, key)
}

func (r underLease) Update(ctx context.Context, key fencepost.Key, set fencepost.Set) error {
	return r.table.Update(ctx, r.lease, key, set)
}

func (r underLease) Modify(ctx context.Context, key fencepost.Key, fn func(*Part) error) error {
	return r.table.Modify(ctx, r.lease, key, fn)
}

func (r underLease) Insert(ctx context.Context, key fencepost.Key, set fencepost.Set) error {
	return r.table.Insert(ctx, r.lease, key, set)
}

func (r underLease) Upsert(ctx context.Context, key fencepost.Key, set fencepost.Set) (bool, error) {
	return r.table.Upsert(ctx, r.lease, key, set)
}

func (r underLease) Delete(ctx context.Context, key fencepost.Key) error {
	return r.table.Delete(ctx, r.lease, key)
}

func (r underLease) UpdateBatch(
	ctx context.Context, changes []fencepost.Change, opts *fencepost.BatchOptions,
) error {
	return r.table.UpdateBatch(ctx, r.lease, changes, opts)
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// plain are the rows of the mode without a fence.
type plain struct{ db querier }

func (r plain) Get(ctx context.Context, key fencepost.Key) (p Part, err error) {
	err = r.db.QueryRow(ctx, `SELECT grp, id, n, mark FROM torture.part WHERE grp = $1 AND id = $2`, key...).
		Scan(&p.Grp, &p.ID, &p.N, &p.Mark)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fencepost.ErrNotFound
	}
	return p, err
}

func (r plain) Update(ctx context.Context, key fencepost.Key, set fencepost.Set) error {
	done, err := r.db.Exec(ctx, `UPDATE torture.part SET n = $3, mark = $4 WHERE grp = $1 AND id = $2`, args(key, set)...)
	return one(done, err)
}

// Modify reads, and writes what it has computed, as many programs do.
func (r plain) Modify(ctx context.Context, key fencepost.Key, fn func(*Part) error) error {
	p, err := r.Get(ctx, key)
	if err != nil {
		return err
	}
	if err := fn(&p); err != nil {
		return err
	}
	return r.Update(ctx, key, fencepost.Set{"n": p.N, "mark": p.Mark})
}

func (r plain) Insert(ctx context.Context, key fencepost.Key, set fencepost.Set) error {
	done, err := r.db.Exec(ctx, `INSERT INTO torture.part (grp, id, n, mark) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, args(key, set)...)
	if err == nil && done.RowsAffected() == 0 {
		err = fencepost.ErrExists
	}
	return err
}

func (r plain) Upsert(ctx context.Context, key fencepost.Key, set fencepost.Set) (bool, error) {
	_, err := r.db.Exec(ctx, `INSERT INTO torture.part (grp, id, n, mark) VALUES ($1, $2, $3, $4)
		ON CONFLICT (grp, id) DO UPDATE SET n = EXCLUDED.n, mark = EXCLUDED.mark`, args(key, set)...)
	return false, err
}

func (r plain) Delete(ctx context.Context, key fencepost.Key) error {
	return one(r.db.Exec(ctx, `DELETE FROM torture.part WHERE grp = $1 AND id = $2`, key...))
}

func (r plain) UpdateBatch(ctx context.Context, changes []fencepost.Change, _ *fencepost.BatchOptions) error {
	for _, c := range changes {
		if err := r.Update(ctx, c.Key, c.Set); err != nil {
			return err
		}
	}
	return nil
}

func args(key fencepost.Key, set fencepost.Set) []any {
	return []any{key[0], key[1], set["n"], set["mark"]}
}

func one(done pgconn.CommandTag, err error) error {
	if err == nil && done.RowsAffected() == 0 {
		return fencepost.ErrNotFound
	}
	return err
}
