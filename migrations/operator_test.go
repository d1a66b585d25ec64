package migrations_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// An operator sees who claimed what and when, which keys were used, and what is wrong. It sees no nonce and no result,
// because they are secrets, and changes nothing.
func TestAnOperatorLooksAndChangesNothing(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	up(t, db, nil)
	role := loginRole(t, db, "operator")
	operator := open(t, asRole(t, address, role))
	mustExec(t, db,
		`SELECT fencepost.claim('shop:invoice:1', 7, '00000000-0000-4000-8000-000000000001', 'nightly')`,
		`INSERT INTO fencepost.ledger VALUES ('shop', 'night-1', 'shop:invoice:1', sha256(''), '{"card": 1}', now())`)
	look := []string{
		`SELECT resource, token, label, claimed_at FROM fencepost.fences`,
		`SELECT namespace, key, resource, done_at FROM fencepost.keys`,
		`SELECT * FROM fencepost.protected`,
		`SELECT * FROM fencepost.verify()`,
	}
	wantStates(t, operator, "42501", look...) // the control: the grant is what does it
	mustExec(t, db, `SELECT fencepost.grant_operator('`+quoted(role)+`')`)
	wantStates(t, operator, "", look...)
	const seen = `SELECT (f.resource, f.token, f.label, now() - f.claimed_at < interval '1 hour', k.key)::text
		FROM fencepost.fences AS f, fencepost.keys AS k`
	if got, want := value[string](t, operator, seen), `(shop:invoice:1,7,nightly,t,night-1)`; got != want {
		t.Errorf("the operator sees %s, want %s", got, want)
	}
	const secrets = `SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE c.oid IN ('fencepost.fences'::regclass, 'fencepost.keys'::regclass)
		AND a.attname IN ('nonce', 'request', 'result')`
	if n := value[int](t, db, secrets); n != 0 {
		t.Errorf("%d columns of the views are secret", n)
	}
	wantStates(t, operator, "42501",
		`SELECT nonce FROM fencepost.fence`,
		`SELECT result FROM fencepost.ledger`,
		`UPDATE fencepost.fences SET token = 1`,
		`DELETE FROM fencepost.fences`,
		`DELETE FROM fencepost.keys`,
		`SELECT fencepost.claim('shop:invoice:1', 8, gen_random_uuid())`,
		`SELECT fencepost.bypass('x')`,
	)
	wantRights(t, db)
	if _, err := migrations.Status(t.Context(), operator, nil); err != nil {
		t.Errorf("Status of an operator: %v", err)
	}
}
