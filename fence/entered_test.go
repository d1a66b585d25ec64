package fence_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// Values left over in the session count as unset, for enter and for the protections.
func TestCase52_WhatASessionWasLeftWithCountsAsUnset(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	c, d := fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:1", 5),
	), fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("test:item:2", 5),
	)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	write := sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id IN (1, 2)`)
	for _, left := range []string{
		`{`, `{"test:item:1": ["5", "x"]}`, ` "test:item:1":9:x`, ` "test:item:1":`,
		`"`, strings.Repeat(" :", 1000),
	} {
		fencetest.Exec(t, conn, `SELECT set_config('fencepost.entered', $1, false)`, left)
		if err := pgx.BeginFunc(t.Context(), conn, write); sqlState(err) != "ZF004" && sqlState(err) != "ZF001" {
			t.Errorf("%q opens the protection: %v", left, err)
		}
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			for _, claim := range []fence.Claim{c, d} {
				if err := fence.Enter(t.Context(), tx, claim); err != nil {
					return err
				}
			}
			return write(tx)
		})
		if err != nil {
			t.Errorf("%q: %v", left, err)
		}
	}
}

// Another role's trigger can use nothing that it reads during a guarded write: the nonce is not there, and the value
// that is there opens no protection in another transaction.
func TestCase52_WhatAReaderFindsProvesNothing(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	fencetest.Exec(t, pool, `CREATE TABLE app.seen (setting text);
		CREATE FUNCTION app.spy() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO app.seen VALUES (current_setting('fencepost.entered')); RETURN NULL; END $$;
		CREATE TABLE app.other (id int);
		CREATE TRIGGER spy AFTER INSERT ON app.other FOR EACH ROW EXECUTE FUNCTION app.spy()`)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 5))
	if err := under(t.Context(), pool, sends(t.Context(), `INSERT INTO app.other VALUES (1)`), c); err != nil {
		t.Fatal(err)
	}
	var seen string
	if err := pool.QueryRow(t.Context(), `SELECT setting FROM app.seen`).Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(seen, uuidOf(c.Nonce)) || strings.Contains(seen, c.Nonce.Hex()) ||
		!strings.Contains(seen, "test:item:1") {
		t.Errorf("it reads %s", seen)
	}
	write := func(setting string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SELECT set_config('fencepost.entered', $1, true)`, setting)
			return sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)(tx)
		})
	}
	wantState(t, write(seen), "ZF001")
	// The control: a value that is not bound to a transaction opens the protection.
	replaceFunction(t, pool, "entered_text(text, bigint, uuid)", `pg_catalog.pg_current_xact_id()`, `0`)
	if err := under(t.Context(), pool, sends(t.Context(), `INSERT INTO app.other VALUES (1)`), c); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT setting FROM app.seen OFFSET 1`).Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if err := write(seen); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// A text that is too long is an invalid argument in every SQL function, and violates no constraint.
func TestCase52_WhatIsTooLongIsInvalid(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const nonce = `'00000000-0000-0000-0000-000000000001'`
	for _, call := range []string{
		`claim(repeat('x', 1025), 1, ` + nonce + `)`,
		`claim_now(repeat('x', 1025), 1, ` + nonce + `)`,
		`claim_marked(repeat('x', 1025), 1, ` + nonce + `, '', 1)`,
		`draw(repeat('x', 1025), ` + nonce + `)`,
		`draw_marked(repeat('x', 1025), ` + nonce + `, '', 1, 1)`,
		`enter_marked(repeat('x', 1025), 1, ` + nonce + `, 1)`,
		`claim_all(ARRAY[repeat('x', 1025)], '{1}', ARRAY[` + nonce + `]::uuid[])`,
		`guard(repeat('x', 1025), 1, ` + nonce + `)`,
		`enter(repeat('x', 1025), 1, ` + nonce + `)`,
		`enter_all(ARRAY[repeat('x', 1025)], '{1}', ARRAY[` + nonce + `]::uuid[])`,
		`once_begin('n', 'k', repeat('x', 1025), sha256('x'))`,
		`once_begin('n', repeat('x', 513), 'r', sha256('x'))`,
		`once_begin(repeat('x', 65), 'k', 'r', sha256('x'))`,
		`once_begin('n', 'k', 'r', 'x')`,
		`once_end('n', 'k', repeat('1', 65537))`,
	} {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.`+call)
		if sqlState(err) != "ZF002" {
			t.Errorf("%s: %v", call, err)
		}
	}
}
