package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// next draws the next operation of the workload. Alone, it needs leases of several groups at the most.
func (t *thread) next(several bool) *history.Op {
	group := t.random.IntN(t.config.Groups)
	row := name(group, t.random.IntN(PerGroup))
	switch t.config.Workload {
	case Register:
		return t.op(draw(t, history.Get, history.Put, history.Change, history.Change, history.Modify), row)
	case Counter:
		return t.op(draw(t, history.Get, history.Change, history.Modify), row)
	case Set:
		return t.op(draw(t, history.Get, history.Insert, history.Upsert, history.Delete), row)
	case Transfer:
		return t.transfer(group, several)
	case Once:
		return t.keyed()
	case Batch:
		return t.op(draw(t, history.Get, history.Batch), all(group)...)
	case Lease:
	}
	return t.op(history.Get, row) // a workload without rows draws none
}

func draw(t *thread, kinds ...history.Kind) history.Kind { return kinds[t.random.IntN(len(kinds))] }

func name(group, id int) string { return fmt.Sprintf("g%d/%d", group, id) }

func all(group int) []string {
	var rows []string
	for id := range PerGroup {
		rows = append(rows, name(group, id))
	}
	return rows
}

// transfer moves between rows of two groups if it may, or of one. Now and then everything is added up.
func (t *thread) transfer(group int, several bool) *history.Op {
	if !several {
		from := t.random.IntN(PerGroup)
		return t.op(history.Transfer, name(group, from), name(group, (from+1)%PerGroup))
	}
	if t.random.IntN(10) == 0 {
		var rows []string
		for g := range t.config.Groups {
			rows = append(rows, all(g)...)
		}
		return t.op(history.Sum, rows...)
	}
	other := (group + 1) % t.config.Groups
	return t.op(history.Transfer, name(group, t.random.IntN(PerGroup)), name(other, t.random.IntN(PerGroup)))
}

// keyed is work with an idempotency key, which other threads have as well.
func (t *thread) keyed() *history.Op {
	key := t.done/2 + t.random.IntN(4)
	o := t.op(history.Once, name(key%t.config.Groups, 0))
	o.Mark = fmt.Sprintf("key-%d-%d", key%t.config.Groups, key)
	return o
}

// act does an operation on rows. It may be called again for the same operation, when a transaction is repeated.
func (t *thread) act(ctx context.Context, o *history.Op, in rows) error {
	key := keyOf(o.Rows[0])
	switch o.Kind {
	case history.Get:
		return t.see(ctx, o, in, key)
	case history.Put:
		o.WroteN = int64(t.done)
		return in.Update(ctx, key, set(o))
	case history.Change:
		return t.change(ctx, o, in, key)
	case history.Modify:
		return in.Modify(ctx, key, func(p *Part) error {
			saw(o, p)
			o.WroteN, p.N, p.Mark = p.N+1, p.N+1, o.Mark
			return t.think(ctx)
		})
	case history.Insert:
		return in.Insert(ctx, key, set(o))
	case history.Upsert:
		_, err := in.Upsert(ctx, key, set(o))
		return err
	case history.Delete:
		return in.Delete(ctx, key)
	case history.Batch:
		return t.batch(ctx, o, in)
	case history.Transfer:
		return t.move(ctx, o, in)
	case history.Sum:
		return t.sum(ctx, o, in)
	default:
	}
	return errors.New("it is nothing that is done to rows")
}

func set(o *history.Op) fencepost.Set { return fencepost.Set{"n": o.WroteN, "mark": o.Mark} }

func saw(o *history.Op, p *Part) { o.Found, o.Read, o.ReadN = true, p.Mark, p.N }

func (t *thread) see(ctx context.Context, o *history.Op, in rows, key fencepost.Key) error {
	p, err := in.Get(ctx, key)
	if err == nil {
		saw(o, &p)
	}
	return err
}

func (t *thread) change(ctx context.Context, o *history.Op, in rows, key fencepost.Key) error {
	if err := t.see(ctx, o, in, key); err != nil {
		return err
	}
	if err := t.think(ctx); err != nil {
		return err
	}
	o.WroteN = o.ReadN + 1
	return in.Update(ctx, key, set(o))
}

func (t *thread) batch(ctx context.Context, o *history.Op, in rows) error {
	o.WroteN = int64(t.done)
	var changes []fencepost.Change
	for _, row := range o.Rows {
		changes = append(changes, fencepost.Change{Key: keyOf(row), Set: set(o)})
	}
	if err := t.think(ctx); err != nil {
		return err
	}
	return in.UpdateBatch(ctx, changes, nil)
}

// move reads two rows, and writes both.
func (t *thread) move(ctx context.Context, o *history.Op, in rows) error {
	from, err := in.Get(ctx, keyOf(o.Rows[0]))
	if err != nil {
		return err
	}
	to, err := in.Get(ctx, keyOf(o.Rows[1]))
	if err != nil {
		return err
	}
	if err := t.think(ctx); err != nil {
		return err
	}
	o.WroteN = 1
	if err := in.Update(ctx, keyOf(o.Rows[0]), fencepost.Set{"n": from.N - 1, "mark": o.Mark}); err != nil {
		return err
	}
	return in.Update(ctx, keyOf(o.Rows[1]), fencepost.Set{"n": to.N + 1, "mark": o.Mark})
}

func (t *thread) sum(ctx context.Context, o *history.Op, in rows) error {
	o.ReadN = 0
	for _, row := range o.Rows {
		p, err := in.Get(ctx, keyOf(row))
		if err != nil {
			return err
		}
		o.ReadN += p.N
	}
	o.Found = true
	return nil
}

// effect is the work of an idempotency key: it raises a number.
func (t *thread) effect(o *history.Op) result {
	return func(ctx context.Context, in rows) (n int64, err error) {
		err = in.Modify(ctx, keyOf(o.Rows[0]), func(p *Part) error {
			n = p.N + 1
			p.N, p.Mark = n, o.Mark
			return t.think(ctx)
		})
		return n, err
	}
}
