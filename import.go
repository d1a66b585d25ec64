package fencepost

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
)

// ImportOptions are the settings of an import. The zero value, and a nil pointer, mean the defaults.
type ImportOptions struct {
	// BatchRows is how many rows are written together, from 1 to 1,000. Default 1,000. While a batch is written it has
	// an advisory lock of PostgreSQL for each of its resources. The server's lock table has room for 6,400 by default,
	// so with many imports at the same time choose smaller batches, or raise max_locks_per_transaction.
	BatchRows int
	// Acquire are the settings of the leases of each batch. Default: the store's.
	Acquire *AcquireOptions
}

// Import writes rows of many resources, each under a lease of its own resource, which Import acquires and releases. It
// is for tables with [PerRow] or [PerGroup]; for many rows of one resource [Table.Load] needs one lease. Rows that do
// not exist are inserted, with defaults in the columns that are not named, and others are overwritten. columns names
// the columns of a source row, in order. It must include all key columns, and not the token column.
//
// The rows are written in batches, each of the next BatchRows rows of the source. A batch is read into memory, its
// leases are acquired as by [Store.AcquireAll], its rows are written in one transaction that is guarded by all of them,
// as by [Store.Tx], and the leases are released. If all leases are free, that transaction makes their claims as well, as
// [Store.Do] does. So a batch is written as a whole or not at all, a slow source delays nobody, imports with overlapping
// resources do not deadlock, and no resource is held for longer than a batch takes.
//
// written is how many rows have been committed: always the first rows of the source, in its order. After an error a
// program can correct the cause and import the rest of the source. With ErrOutcomeUnknown the next batch may have been
// committed as well; it may be imported again, if the source still says what is to be in the rows.
//
// If another holder has the lease of a row, the import waits for it until ctx ends. Meanwhile it holds the leases of
// its batch that come before that one by name. With AcquireOptions.NoWait it ends with a *HeldError, which names the
// resource.
//
// A key that is given twice within a batch is ErrInvalid, and nothing of that batch is written. If it is given twice at
// a greater distance, the later row overwrites the earlier one. If a row carries a higher token, or the database does
// not let it change, the *BatchError lists each such row of its batch, with its index in the source. Nothing heals: if
// rows are ahead of their fence, adopt the table first.
//
// The source is read by the caller's goroutine. Its values are sent after later rows have been read, so they must not
// change until then, except that a []byte is copied. Import checks ctx before each row, and returns the source's error as it
// is. Other errors are those of AcquireAll, of Tx, and of [Table.UpsertBatch]; ErrInvalid also for options out of range.
// ctx bounds the call, except the release of leases and settling the outcome of a COMMIT.
func (t *Table[T]) Import(
	ctx context.Context, columns []string, source pgx.CopyFromSource, opts *ImportOptions,
) (written int64, err error) {
	if err := outsideTx(ctx); err != nil {
		return 0, err
	}
	im, err := t.newImport(columns, source, opts)
	if err != nil {
		return 0, err
	}
	for more := true; more; {
		if more, err = im.read(ctx); err != nil {
			return im.written, err
		}
		if err := im.write(ctx); err != nil {
			return im.written, im.fromStart(err)
		}
		im.written += int64(len(im.rows))
	}
	return im.written, nil
}

// importing is one import.
type importing[T any] struct {
	table     *Table[T]
	columns   []string
	places    []int // of the key columns in a row of the source
	source    pgx.CopyFromSource
	batchRows int
	acquire   *AcquireOptions
	written   int64
	enters    bool // the transactions tell the table's protection about their claims

	// The batch.
	rows      []Change
	resources []string // of the rows, in their order
	room      []byte
}

func (t *Table[T]) newImport(
	columns []string, source pgx.CopyFromSource, opts *ImportOptions,
) (*importing[T], error) {
	if source == nil {
		return nil, invalidf("an import without a source")
	}
	var o ImportOptions
	if opts != nil {
		o = *opts
	}
	if o.BatchRows == 0 {
		o.BatchRows = pgclaim.MaxTogether
	}
	if o.BatchRows < 1 || o.BatchRows > pgclaim.MaxTogether {
		return nil, invalidf("BatchRows %d is outside 1 to %d", o.BatchRows, pgclaim.MaxTogether)
	}
	im := &importing[T]{
		table: t, columns: slices.Clone(columns), source: source, batchRows: o.BatchRows, acquire: o.Acquire,
		places: make([]int, len(t.table.Key)), enters: t.table.Protected,
	}
	for i, name := range t.table.Key {
		if im.places[i] = slices.Index(columns, name); im.places[i] < 0 {
			return nil, invalidf("key column %q is not among the columns of the import", name)
		}
	}
	for i, name := range columns {
		if slices.Contains(columns[:i], name) {
			return nil, invalidf("column %q is named twice", name)
		}
	}
	return im, nil
}

// read reads the next batch. more is false if the source has no further row.
func (im *importing[T]) read(ctx context.Context) (more bool, err error) {
	im.rows, im.resources = im.rows[:0], im.resources[:0]
	for len(im.rows) < im.batchRows {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !im.source.Next() {
			return false, im.source.Err()
		}
		values, err := im.source.Values()
		if err != nil {
			return false, err
		}
		if err := im.add(values); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (im *importing[T]) add(values []any) error {
	if len(values) != len(im.columns) {
		return invalidf("row %d has %d values, not %d", im.place(), len(values), len(im.columns))
	}
	key := make(Key, len(im.places))
	for i, place := range im.places {
		key[i] = keptUntilSent(values[place])
	}
	text, key, err := im.table.resource(im.room[:0], key)
	if err != nil {
		return invalidf("row %d: %w", im.place(), err)
	}
	im.room = text
	set := make(Set, len(values)-len(key))
	for i, name := range im.columns {
		if !slices.Contains(im.places, i) {
			set[name] = keptUntilSent(values[i])
		}
	}
	im.rows = append(im.rows, Change{Key: key, Set: set})
	im.resources = append(im.resources, string(text))
	return nil
}

// keptUntilSent copies a value that the source may overwrite before the batch is sent.
func keptUntilSent(value any) any {
	if bytes, ok := value.([]byte); ok {
		return slices.Clone(bytes)
	}
	return value
}

// place is the index, in the source, of the row that is being read.
func (im *importing[T]) place() int64 { return im.written + int64(len(im.rows)) }

// write writes the batch under leases of its own.
func (im *importing[T]) write(ctx context.Context) (err error) {
	batch, err := im.table.batches.Batch(im.rows)
	if err != nil || len(im.rows) == 0 {
		return err
	}
	s, began := im.table.store, time.Now()
	leases, claimed, err := s.acquireAll(ctx, im.resources, im.acquire, true)
	if err != nil {
		return err
	}
	defer func() { // also if a value's own encoding, or an event's handler, panics
		for i, released := range releaseEach(ctx, leases) {
			if released != nil && !errors.Is(err, released) {
				s.notReleased(leases[i], released)
			}
		}
	}()
	fn := func(ctx context.Context, tx pgx.Tx) error {
		tokens, err := im.tokens(tx)
		if err != nil {
			return err
		}
		return batch.UpsertEach(ctx, tx, tokens)
	}
	if claimed {
		return s.Tx(ctx, fn, leases...)
	}
	return im.claimAndWrite(ctx, fn, leases, began)
}

// claimAndWrite claims the leases in the transaction that writes, as Do does. If that cannot claim all of them without
// waiting, they are claimed first.
func (im *importing[T]) claimAndWrite(ctx context.Context, fn TxFunc, leases []*Lease, began time.Time) error {
	s := im.table.store
	o, err := s.txOptions(nil)
	if err != nil {
		return err
	}
	ctx, add, stop := boundByAll(ctx)
	defer stop()
	for _, l := range leases {
		add(l)
	}
	r := &txRun{store: s, leases: leases, opts: o}
	r.fn = func(ctx context.Context, tx pgx.Tx) error {
		s.acquiredAll(ctx, leases, began) // as Do does: before the work, which is not part of the wait
		return fn(ctx, tx)
	}
	r.open = func(ctx context.Context, conn *pgx.Conn, t *guardedTx) error {
		return r.openClaiming(ctx, conn, t, im.enters)
	}
	held := holding(ctx, leases...)
	err = s.transact(held, subject{leases: leases}, func() error {
		err := r.attempt(held)
		if refused := (*NotEnteredError)(nil); !im.enters && errors.As(err, &refused) {
			im.enters = true // the table has been protected since it was declared
			err = r.attempt(held)
		}
		return err
	})
	if !errors.Is(err, errNotAllClaimed) {
		return err
	}
	if err := s.claimAll(ctx, leases, im.acquire, began); err != nil {
		return lostOr(leases, err)
	}
	return s.Tx(ctx, fn, leases...)
}

var errNotAllClaimed = errors.New("a claim was refused, or would have had to wait")

// openClaiming begins a transaction that claims the tokens of its leases, all in one round trip. The claims and the
// writes are committed together; until then each fence is locked, so the transaction needs no guard. With enter it tells
// the triggers of a protected table about its claims. If one of them was not made, nothing is, and the error is
// errNotAllClaimed.
func (r *txRun) openClaiming(ctx context.Context, conn *pgx.Conn, t *guardedTx, enter bool) error {
	claims, ok := grantedClaims(r.leases)
	if !ok {
		return errNotAllClaimed
	}
	var answers func() ([]pgclaim.Raised, error)
	err := r.store.beginMarked(ctx, conn, t, func(mark *pgcommit.Mark) (pgx.Tx, error) {
		var b pgx.Batch
		b.BeginTx(pgx.TxOptions{IsoLevel: r.opts.Isolation})
		boundIdle(&b, r.opts.MaxIdle)
		pgcommit.QueueMark(&b, mark)
		answers = pgclaim.QueueRaiseAll(&b, claims, r.leases[0].hold.Label())
		if enter {
			pgclaim.QueueEnterAll(&b, claims)
		}
		return sendBegin(ctx, conn, &b, "claim")
	})
	if errors.Is(err, ErrStale) {
		return errNotAllClaimed // not entered, because it was not claimed
	}
	if err != nil {
		return err
	}
	raised, err := answers()
	if err == nil && slices.ContainsFunc(raised, func(r pgclaim.Raised) bool { return !r.Claimed }) {
		err = errNotAllClaimed
	}
	if err != nil {
		rollback(ctx, t.Tx)
		return err
	}
	t.claims = claims
	for i, l := range r.leases {
		l.setClaim(claims[i])
	}
	return nil
}

// tokens returns the token of each row: that of its resource's claim, as the transaction has entered it.
func (im *importing[T]) tokens(tx pgx.Tx) ([]Token, error) {
	handed, err := handedOut(tx)
	if err != nil {
		return nil, err
	}
	entered := make(map[string]Token, len(handed.leases))
	for i, l := range handed.leases {
		entered[l.resource] = handed.claims[i].Token
	}
	tokens := make([]Token, len(im.resources))
	for i, resource := range im.resources {
		tokens[i] = entered[resource]
	}
	return tokens, nil
}

// fromStart counts the rows of a batch's error from the start of the source.
func (im *importing[T]) fromStart(err error) error {
	var report *BatchError
	if errors.As(err, &report) {
		for i := range report.Failures {
			report.Failures[i].Index += int(im.written)
		}
	}
	return err
}
