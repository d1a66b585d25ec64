package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	bench "github.com/fencepost-pg/fencepost/bench/measure"
)

// Options are the settings of [Run].
type Options struct {
	// PostgresURL leads to a database with fencepost's migrations and the tables of package work, which nobody else uses.
	// Run empties the tables and makes further ones.
	PostgresURL string
	// RedisURLs are what mode.RedisQuorum works with; all other modes take the first. The keys that Run leaves there
	// begin with "fencepost:" and the namespace, or with the namespace.
	RedisURLs []string
	// Namespace keeps the keys apart from those of others. Default "compare".
	Namespace string
	// Modes are the modes to measure. Default: all.
	Modes []string
	// Quick measures for a short time: the figures say how a mode works, and little about how fast.
	Quick bool
	// Limits bound it in time.
	Limits Limits
	// Progress is called before each step, with the number of steps done. Default: none.
	Progress func(done, total int, what string)
}

// Limits say how long something may take before the run ends with an error that names it, so that a server that is gone
// does not hold up the run for ever. Each default is several times what a busy machine takes.
type Limits struct {
	Operation time.Duration // one operation, all attempts at it together; default a minute
	Step      time.Duration // one measured part, such as the round trips of a mode; default two minutes
	Run       time.Duration // all of it; default ten minutes
}

func (l *Limits) orDefault() Limits {
	return Limits{
		Operation: cmp.Or(
			l.Operation,
			time.Minute,
		),
		Step: cmp.Or(l.Step, 2*time.Minute),
		Run:  cmp.Or(l.Run, 10*time.Minute), //nolint:mnd // they are told above
	}
}

// Result is what was measured.
type Result struct {
	Modes   []report.ModeFigures
	Figures []report.Figure
}

const (
	// workers is how many goroutines work at the same time.
	workers = 8
	// ttl is long enough for no lease to be renewed in the middle.
	ttl = 30 * time.Second
	// attempt bounds one attempt at an operation.
	attempt = 30 * time.Second
)

// plan says how much is measured of what.
type plan struct {
	operations, autocommit, transaction, single bench.Plan
	trips                                       int           // operations whose round trips are counted
	settle, watch                               time.Duration // how long waiters are left alone, and looked at
	handOff                                     time.Duration
}

func planOf(quick bool) plan {
	rounds := func(n int, slice time.Duration) bench.Plan {
		return bench.Plan{Rounds: n, Slice: slice, WarmUp: slice, Workers: workers}
	}
	if quick {
		const slice = 100 * time.Millisecond
		return plan{
			operations: rounds(
				2,
				slice,
			),
			autocommit:  rounds(3, 2*slice),
			transaction: rounds(3, slice),
			single:      rounds(3, slice),
			trips:       20,
			settle:      slice,
			watch:       slice,
			handOff:     2 * slice,
		}
	}
	const slice = 400 * time.Millisecond
	return plan{
		operations: rounds(
			8,
			slice,
		),
		autocommit:  rounds(15, 2*slice),
		transaction: rounds(8, slice),
		single:      rounds(8, slice),
		trips:       200,
		settle:      slice,
		watch:       slice,
		handOff:     3 * slice,
	}
}

// measurer is what one run works with.
type measurer struct {
	options  Options
	plan     plan
	pool     *pgxpool.Pool // for what is not a mode's
	figures  map[string]*report.ModeFigures
	rows     []report.Figure
	handOffs map[string]*latencies
}

// Run measures. If ctx ends, or a limit is reached, Run gives up the running call, and the error names what took too
// long. Run tries an operation again until it is accepted or out of time. The first operation that is not accepted, or
// is broken, ends the run.
func Run(ctx context.Context, o *Options) (*Result, error) {
	limits := o.Limits.orDefault()
	ctx, cancel := within(ctx, limits.Run, "measuring")
	defer cancel()
	m := &measurer{
		options:  *o,
		plan:     planOf(o.Quick),
		figures:  make(map[string]*report.ModeFigures),
		handOffs: make(map[string]*latencies),
	}
	m.options.Limits = limits
	if m.options.Namespace == "" {
		m.options.Namespace = "compare"
	}
	if len(m.options.Modes) == 0 {
		m.options.Modes = mode.Names()
	}
	for _, name := range m.options.Modes {
		m.figures[name] = &report.ModeFigures{Mode: name}
	}
	config, err := pgxpool.ParseConfig(o.PostgresURL)
	if err != nil {
		return nil, errors.New("the PostgreSQL address is not valid") // the cause quotes it
	}
	// One connection for each worker: what is measured is not the wait for one.
	config.MaxConns = workers
	if m.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	defer m.pool.Close()
	if err := m.run(ctx); err != nil {
		return nil, err
	}
	r := &Result{Figures: m.rows}
	for _, name := range m.options.Modes {
		r.Modes = append(r.Modes, *m.figures[name])
	}
	return r, nil
}

// within returns a context that ends after a time, with a cause that says what took too long.
func within(ctx context.Context, limit time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s took longer than %v", what, limit))
}

// explained adds to an error the cause of ctx, if ctx has ended.
func explained(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// step is one thing to measure.
type step struct {
	what string
	do   func(context.Context) error
}

func (m *measurer) run(ctx context.Context) error {
	steps := []step{{"operations", m.operations}}
	for _, name := range m.options.Modes {
		steps = append(steps,
			step{"round trips of " + name, func(ctx context.Context) error { return m.trips(ctx, name) }},
			step{"waiters of " + name, func(ctx context.Context) error { return m.waiters(ctx, name) }})
		if workloadOf(name) != work.Invoice { // each is of a number of its own: nothing is handed over
			steps = append(steps, step{"hand-off of " + name, func(ctx context.Context) error { return m.handOff(ctx, name) }})
		}
	}
	if m.measures(mode.None) && m.measures(mode.RedisLease) {
		for _, c := range comparisons() {
			steps = append(steps, step{c.title, func(ctx context.Context) error { return m.compare(ctx, c) }})
		}
	}
	for i, s := range steps {
		if m.options.Progress != nil {
			m.options.Progress(i, len(steps), s.what)
		}
		if err := m.step(ctx, s); err != nil {
			return err
		}
	}
	m.compareHandOffs()
	return nil
}

// step measures one thing, on rows that nobody has written to.
func (m *measurer) step(ctx context.Context, s step) error {
	ctx, cancel := within(ctx, m.options.Limits.Step, "measuring "+s.what)
	defer cancel()
	err := work.Fill(ctx, m.pool, workers*rowsOfWorker, 0)
	if err == nil {
		err = s.do(ctx)
	}
	if err != nil {
		return fmt.Errorf("measure %s: %w", s.what, explained(ctx, err))
	}
	return nil
}

func (m *measurer) measures(name string) bool { return slices.Contains(m.options.Modes, name) }

// open opens a mode with so many connections. It must be closed.
func (m *measurer) open(
	ctx context.Context,
	name string,
	connections int32,
	edit func(*mode.Config),
) (mode.Mode, error) {
	c := mode.Config{
		PostgresURL: m.options.PostgresURL, RedisURLs: m.options.RedisURLs, TTL: ttl, Namespace: m.options.Namespace,
		Connections: connections,
	}
	if name != mode.RedisQuorum && len(c.RedisURLs) > 1 {
		c.RedisURLs = c.RedisURLs[:1]
	}
	if edit != nil {
		edit(&c)
	}
	return mode.Open(ctx, name, c)
}
