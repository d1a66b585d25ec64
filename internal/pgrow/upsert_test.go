package pgrow_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// upserts writes the row of a key three times, each with its own token, and requires that only the first is reported as
// inserted.
func upserts(t *testing.T, upsert func(tok int64) (bool, error)) {
	t.Helper()
	for tok, want := range []bool{true, false, false} {
		inserted, err := upsert(int64(tok) + 5)
		if err != nil || inserted != want {
			t.Errorf("token %d: inserted %v, %v", tok+5, inserted, err)
		}
	}
}

// An upsert tells an insert from an update on tables of every kind: an ordinary one, a partitioned one, one whose
// triggers write every row again, and inside one transaction, in which nothing of an earlier upsert is left.
func TestAnUpsertTellsInsertedFromUpdated(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE TABLE app.parted (id bigint PRIMARY KEY, value text, last_fencing_token bigint NOT NULL DEFAULT 0)
			PARTITION BY RANGE (id);
		CREATE TABLE app.low PARTITION OF app.parted FOR VALUES FROM (0) TO (100);
		CREATE TABLE app.high PARTITION OF app.parted FOR VALUES FROM (100) TO (200);
		CREATE TABLE app.touched (id bigint PRIMARY KEY, value text, last_fencing_token bigint NOT NULL DEFAULT 0);
		CREATE FUNCTION app.touch() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN NEW.value := NEW.value || '.'; RETURN NEW; END $$;
		CREATE FUNCTION app.again() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN UPDATE app.touched SET value = value || '!' WHERE id = NEW.id; RETURN NULL; END $$;
		CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON app.touched FOR EACH ROW EXECUTE FUNCTION app.touch();
		CREATE TRIGGER again AFTER INSERT ON app.touched FOR EACH ROW EXECUTE FUNCTION app.again();`)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 100))
	for _, name := range []string{"item", "parted", "touched"} {
		for _, id := range []int{50, 150} {
			table := pgtable.Table{Schema: "app", Name: name, Key: []string{"id"}}
			key, set := pgtable.Key{id}, pgtable.Set{"value": "v"}
			t.Run(fmt.Sprint(name, id), func(t *testing.T) {
				upserts(t, func(tok int64) (bool, error) {
					return pgrow.Upsert(t.Context(), pool, table, token.Token(tok), key, set)
				})
				fencetest.Exec(t, pool, "DELETE FROM "+table.String()+" WHERE id = $1", id)
				upserts(t, func(int64) (inserted bool, err error) {
					err = fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
						inserted, err = pgrow.UpsertClaimed(t.Context(), conn, c, table, key, set)
						return err
					})
					return inserted, err
				})
				fencetest.Exec(t, pool, "DELETE FROM "+table.String()+" WHERE id = $1", id)
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					upserts(t, func(tok int64) (bool, error) {
						return pgrow.Upsert(t.Context(), tx, table, token.Token(tok), key, set)
					})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The row that an upsert meets may have been inserted by a transaction that it has to wait for.
func TestAnUpsertThatWaitsForAnInsertUpdates(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	fencetest.Exec(t, tx, `INSERT INTO app.item (id) VALUES (9)`)
	type outcome struct {
		inserted bool
		err      error
	}
	done := make(chan outcome, 1)
	go func() {
		inserted, err := pgrow.Upsert(t.Context(), pool, fencetest.Rows, 5, pgtable.Key{9}, pgtable.Set{"value": "v"})
		done <- outcome{inserted, err}
	}()
	fencetest.UntilBlockedBy(t, pool, tx)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.inserted || got.err != nil {
		t.Errorf("got %+v", got)
	}
}

// The control: xmax, which is often used for this, cannot be read from a partitioned table.
func TestControl_XmaxDoesNotTellInsertedFromUpdated(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `CREATE TABLE app.parted (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE app.low PARTITION OF app.parted FOR VALUES FROM (0) TO (100)`)
	var inserted bool
	err := pool.QueryRow(t.Context(), `INSERT INTO app.parted VALUES (1) ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id
		RETURNING xmax = 0`).Scan(&inserted)
	if err == nil {
		t.Error("xmax was returned from a partitioned table")
	}
}
