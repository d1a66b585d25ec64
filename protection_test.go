package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

// onProtectedTable is setup with app.invoice protected by the rule that the table declares.
func onProtectedTable(t *testing.T) *bundle {
	t.Helper()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	return b
}

// The store's own writes pass the protection without any change to them.
func TestTheStoreWritesThroughTheProtection(t *testing.T) {
	t.Parallel()
	b := onProtectedTable(t)
	l := b.acquire(t, "invoice-1", nil)
	key := fencepost.Key{"1"}
	if _, err := b.table.Stamp(t.Context(), l, key); err != nil {
		t.Error(err)
	}
	if err := b.table.Update(t.Context(), l, key, fencepost.Set{"value": "a"}); err != nil {
		t.Error(err)
	}
	err := b.store.Tx(t.Context(), func(_ context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE app.invoice SET value = value || 'b' WHERE id = '1'`)
		return err
	}, l)
	if r := b.read(t, "1"); err != nil || r.Value != "ab" || r.LastFencingToken != l.Token() {
		t.Errorf("the row is %+v, %v", r, err)
	}
	if err := b.table.Delete(t.Context(), l, key); err != nil {
		t.Error(err)
	}
	if err := b.table.Insert(t.Context(), l, key, fencepost.Set{"value": "c"}); err != nil {
		t.Error(err)
	}
	if err := second(
		b.table.Upsert(t.Context(), l, key, fencepost.Set{"value": "d"}),
	); err != nil ||
		b.read(t, "1").Value != "d" {
		t.Error(err)
	}
	if err := b.table.UpdateBatch(
		t.Context(),
		l,
		[]fencepost.Change{{Key: key, Set: fencepost.Set{"value": "e"}}},
		nil,
	); err != nil {
		t.Error(err)
	}
	loaded, err := b.table.Load(t.Context(), l, []string{"id", "value"}, pgx.CopyFromRows([][]any{{"1", "f"}}), nil)
	if r := b.read(t, "1"); err != nil || loaded != 1 || r.Value != "f" || r.LastFencingToken != l.Token() {
		t.Errorf("loaded %d: %+v, %v", loaded, r, err)
	}
	// A bare token has no claim.
	wantErr(
		t,
		fence.Update(
			t.Context(),
			b.pool,
			fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}},
			1<<30,
			fence.Key{"2"},
			fence.Set{"value": "bare"},
		),
		fencepost.ErrStale,
	)
}

// A program whose rule differs from the protection's would guard its rows by other resources than the protection does.
// NewTable reports that.
func TestATableWithAnotherRuleThanItsProtectionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `ALTER TABLE app.invoice ADD other_token bigint NOT NULL DEFAULT 0`)
	declare := func() error {
		_, err := fencepost.NewTable[struct{ ID string }](t.Context(), b.store, invoiceSpec())
		return err
	}
	if err := declare(); err != nil {
		t.Errorf("without a protection: %v", err)
	}
	for name, arguments := range map[string]string{
		"namespace":    `'another', 'invoice-', '{id}'`,
		"prefix":       `$1, 'invoice:', '{id}'`,
		"no columns":   `$1, 'invoice-', '{}'`,
		"token column": `$1, 'invoice-', '{id}', token_column => 'other_token'`,
		"observing":    `$1, 'bill-', '{id}', mode => 'observe'`,
	} {
		exec(
			t,
			b.pool,
			`SELECT fencepost.protect('app.invoice', `+arguments+`) FROM (VALUES ($1::text)) AS own`,
			b.opts.Namespace,
		)
		var refused *fence.TableError
		if err := declare(); !errors.As(err, &refused) ||
			!containsAll(refused.Problem, "fencepost.protect", "invoice-", b.opts.Namespace) {
			t.Errorf("%s: %v", name, err)
		}
	}
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	if err := declare(); err != nil {
		t.Errorf("the same rule: %v", err)
	}
}

// A table that took a protected table's name has no protection, and so no rule to compare with. A program gets an
// error, whatever its own rule is, until the table is protected.
func TestCase33_NewTableRefusesATableInAProtectedOnesPlace(t *testing.T) {
	t.Parallel()
	b := onProtectedTable(t)
	exec(t, b.pool, `CREATE TABLE app.invoice_new (LIKE app.invoice INCLUDING ALL);
		ALTER TABLE app.invoice RENAME TO invoice_old; ALTER TABLE app.invoice_new RENAME TO invoice`)
	for _, rule := range []fencepost.ResourceRule{
		fencepost.PerRow("invoice-"), fencepost.PerRow("another-"),
		fencepost.Constant("all"),
	} {
		spec := invoiceSpec()
		spec.Resource = rule
		_, err := fencepost.NewTable[struct{ ID string }](t.Context(), b.store, spec)
		wantErr(t, err, fencepost.ErrTable)
		var refused *fence.TableError
		if !errors.As(err, &refused) || !containsAll(refused.Problem, "fencepost.protect", "swapped", "app.invoice_old") {
			t.Errorf("got error %v, want one that says why", err)
		}
	}
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	if _, err := fencepost.NewTable[struct{ ID string }](t.Context(), b.store, invoiceSpec()); err != nil {
		t.Errorf("protected: %v", err)
	}
}

// A row ahead of its fence heals on a protected table as on any other.
func TestARowAheadHealsThroughTheProtection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 50`)
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	l := b.acquire(t, "invoice-1", nil)
	if err := b.table.Delete(t.Context(), l, fencepost.Key{"1"}); err != nil || l.Token() < 50 {
		t.Errorf("token %d, %v", l.Token(), err)
	}
}

// Go and the trigger compute the same resource.
func TestTheStoreAndTheProtectionAgreeOnResources(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(
		t,
		b.pool,
		`CREATE TABLE app.line (a text, b integer, c uuid, last_fencing_token bigint NOT NULL DEFAULT 0,
			PRIMARY KEY (a, b, c))`,
	)
	type line struct {
		A                string
		B                int32
		C                [16]byte
		LastFencingToken fencepost.Token
	}
	for columns, rule := range map[string]fencepost.ResourceRule{
		"{a,b,c}": fencepost.PerRow("line/"), "{a}": fencepost.PerGroup("", "a"), "{c,b}": fencepost.PerGroup("%", "c", "b"),
		"{}": fencepost.Constant("all lines"),
	} {
		lines, err := fencepost.NewTable[line](t.Context(), b.store, fencepost.TableSpec{
			Schema: "app", Name: "line", Key: []string{"a", "b", "c"}, Resource: rule,
		})
		if err != nil {
			t.Fatal(err)
		}
		exec(
			t,
			b.pool,
			`SELECT fencepost.protect('app.line', $1, $2, $3::text::name[])`,
			b.opts.Namespace,
			rule.Prefix(),
			columns,
		)
		for _, key := range []fencepost.Key{
			{"x", int32(1), [16]byte{1}},
			{"a/b%c%2F", int32(-7), [16]byte{15: 255}},
			{"é \"'\\{}", int32(1<<31 - 1), [16]byte{}},
			{"A", int32(0), [16]byte{9}},
		} {
			want, err := lines.Resource(key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.pool.Exec(t.Context(), `INSERT INTO app.line (a, b, c) VALUES ($1, $2, $3)`, key...)
			var refused *fence.NotEnteredError
			if !errors.As(fence.GuardError(t.Context(), err), &refused) || refused.Resource != b.opts.Namespace+":"+want {
				t.Errorf("%v: the protection says %v, the table %q", key, err, want)
			}
		}
		exec(t, b.pool, `SELECT fencepost.unprotect('app.line')`)
	}
}
