package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/figure"
	bench "github.com/fencepost-pg/fencepost/bench/measure"
)

// comparison is a job that modes do in the same rounds; the first of them is what the others are compared with.
type comparison struct {
	title  string
	writes int
	modes  []string
	ways   func(*writer) way
	target float64 // of mode.RedisLease
	plan   func(plan) bench.Plan
}

// way does the writes of one turn: so many rows from the given one on.
type way func(ctx context.Context, first int64) error

const manyWrites = 100

func comparisons() []comparison {
	beside := []string{mode.None, mode.RedisLease, mode.AdvisoryXact, mode.ForUpdate}
	return []comparison{
		{
			title: fmt.Sprintf("%d autocommit writes per lease", manyWrites), writes: manyWrites, target: 0.75,
			modes: beside[:2], ways: (*writer).autocommit, plan: func(p plan) bench.Plan { return p.autocommit },
		},
		{
			title: fmt.Sprintf("%d writes in one transaction", manyWrites), writes: manyWrites,
			modes: beside, ways: (*writer).oneTransaction, plan: func(p plan) bench.Plan { return p.transaction },
		},
		{
			title: "one write per lease", writes: 1,
			modes: beside, ways: (*writer).single, plan: func(p plan) bench.Plan { return p.single },
		},
	}
}

// compare measures one comparison.
func (m *measurer) compare(ctx context.Context, c comparison) error {
	bc := bench.Comparison{Title: c.title}
	for _, name := range c.modes {
		if !m.measures(name) {
			continue
		}
		opened, err := m.connect(ctx, name)
		if err != nil {
			return err
		}
		defer opened.close()
		target := 0.0
		if name == mode.RedisLease {
			target = c.target
		}
		bc.Candidates = append(
			bc.Candidates,
			bench.Candidate{Name: name, Target: target, Worker: func(worker int) func(context.Context) error {
				w := &writer{access: opened, mode: name, worker: int64(worker), writes: c.writes}
				do, turn := c.ways(w), int64(0)
				return func(ctx context.Context) error {
					first := turn % rowsWritten
					turn += int64(c.writes)
					w.pass++
					return do(ctx, first)
				}
			}},
		)
	}
	result, err := bench.Compare(ctx, c.plan(m.plan), bc)
	if err != nil {
		return err
	}
	for _, s := range result.Series {
		m.rows = append(m.rows, figureOf(c, s, result.Series[0]))
	}
	return nil
}

func figureOf(c comparison, s, baseline bench.Series) report.Figure {
	f := figure.New(c.title+": "+s.Name, "writes/s", s.Rate(), c.title+": "+baseline.Name, s.Ratio(baseline))
	f.Value *= float64(c.writes)
	if s.Target > 0 {
		f = f.Should(figure.AtLeast, s.Target)
	}
	return report.Figure{Figure: f}
}

// rowsWritten is how many rows a worker of a comparison has.
const rowsWritten = 1000

// row is a row of the tables that are written.
type row struct {
	Worker, ID, Value, LastFencingToken int64
}

// access is what the workers of one mode share: a table of the mode's own, and what else the mode needs.
type access struct {
	pool   *pgxpool.Pool
	table  string
	close  func()
	store  *fencepost.Store
	fenced *fencepost.Table[row] // of mode.RedisLease
	locks  *fencepost.AdvisoryTx // of mode.AdvisoryXact
}

// connect creates the table of a mode.
func (m *measurer) connect(ctx context.Context, name string) (*access, error) {
	a := &access{pool: m.pool, table: pgx.Identifier{"compare", "written " + name}.Sanitize(), close: func() {}}
	for _, sql := range []string{
		`DROP TABLE IF EXISTS ` + a.table,
		`CREATE TABLE ` + a.table + ` (
			worker bigint, id bigint, value bigint NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0,
			PRIMARY KEY (worker, id)) WITH (fillfactor = 50)`,
		fmt.Sprintf(`INSERT INTO %s (worker, id, value) SELECT w, i, 0
			FROM generate_series(0, %d) AS w, generate_series(0, %d) AS i`,
			a.table, workers-1, rowsWritten-1),
		`VACUUM ANALYZE ` + a.table,
	} {
		if _, err := m.pool.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("make the table of %s: %w", name, err)
		}
	}
	return a, m.openStore(ctx, name, a)
}

func (m *measurer) openStore(ctx context.Context, name string, a *access) (err error) {
	o := &fencepost.Options{Namespace: m.options.Namespace, TTL: ttl, CounterIdle: 24 * time.Hour}
	switch name {
	case mode.RedisLease:
		client, err := redisClient(m.options.RedisURLs)
		if err != nil {
			return err
		}
		a.close = func() { _ = client.Close() } // nothing is under way
		if a.store, err = fencepost.New(a.pool, client, o); err == nil {
			a.fenced, err = fencepost.NewTable[row](ctx, a.store, fencepost.TableSpec{
				Schema:   "compare",
				Name:     "written " + name,
				Key:      []string{"worker", "id"},
				Resource: fencepost.PerGroup("written:", "worker"),
			})
		}
		if err != nil {
			a.close()
		}
		return err
	case mode.AdvisoryXact:
		a.locks, err = fencepost.NewAdvisoryTx(a.pool, &fencepost.AdvisoryTxOptions{Namespace: m.options.Namespace})
	}
	return err
}
