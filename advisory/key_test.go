package advisory_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

const (
	composed   = "caf\u00e9"
	decomposed = "cafe\u0301"
)

// golden are keys that no release may change unnoticed: versions with other keys do not exclude each other.
var golden = []struct {
	namespace, name string
	key             int64
}{
	{"default", "invoice:2026-11", 7831139868564788007},
	{"billing", "invoice:2026-11", 5113198962628714273},
	{"billing", "job", -2777525370568515025},
	{"", "", -3431571061670476328},
	{"a", "", 1050938252768577011},
	{"", "a", 2070105962946980213},
	{"a:b", "c", -3792013471762509869},
	{"a", "b:c", -653158924323288373},
	{"n", composed, -762716103869578015},
	{"n", decomposed, 3552886612566482862},
	{"n", "注文:42", 3278215674229979336},
	{"n", "x y\t{}%", 6187271844302989729},
}

func TestCase24_KeysAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	negative := false
	for _, g := range golden {
		if got := advisory.Key(g.namespace, g.name); got != g.key {
			t.Errorf("%q, %q: %d, and it was %d", g.namespace, g.name, got, g.key)
		}
		negative = negative || g.key < 0
	}
	if !negative {
		t.Error("no key has its top bit set: nothing shows that the sign survives")
	}
}

func TestCase24_NoTwoOfAMillionNamesShareAKey(t *testing.T) {
	t.Parallel()
	const names = 1_000_000
	seen := make(map[int64]struct{}, names)
	for i := range names {
		seen[advisory.Key("n", fmt.Sprintf("invoice:%d", i))] = struct{}{}
	}
	if len(seen) != names {
		t.Errorf("%d keys of %d names", len(seen), names)
	}
}

func TestCase24_DifferentPairsHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	for _, pairs := range [][2][2]string{
		{{"a:b", "c"}, {"a", "b:c"}},
		{{"a", ""}, {"", "a"}},
		{{"1", "1:"}, {"1:1", ""}},
		{{"n", composed}, {"n", decomposed}},
		{{"n", "r"}, {"N", "r"}},
	} {
		if advisory.Key(pairs[0][0], pairs[0][1]) == advisory.Key(pairs[1][0], pairs[1][1]) {
			t.Errorf("%q and %q share a key", pairs[0], pairs[1])
		}
	}
}

// The documentation of Key gives this for psql, word for word.
func TestCase24_PostgreSQLComputesTheSameKeys(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	for _, g := range golden {
		var key int64
		err := pool.QueryRow(t.Context(), `WITH named (namespace, name) AS (VALUES ($1::text, $2::text))
			SELECT ('x' || left(encode(sha256(convert_to(
			    octet_length(convert_to(namespace, 'UTF8')) || ':' || namespace || ':' || name, 'UTF8')),
			    'hex'), 16))::bit(64)::bigint
			FROM named`, g.namespace, g.name).Scan(&key)
		if err != nil || key != advisory.Key(g.namespace, g.name) {
			t.Errorf("%q, %q: %d, %v", g.namespace, g.name, key, err)
		}
	}
}

// Locks with one number never collide with those of the gate and the migrations, which have two, even if the bits are
// the same.
func TestCase24_TheGateIsInAnotherSpace(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	l := acquire(t, locker(t, pool, nil), "r")
	defer func() { _ = l.Release(t.Context()) }()
	key := advisory.Key("default", "r")
	var got bool
	err := pool.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1::int, $2::int)`, int32(key>>32), int32(key)).
		Scan(&got)
	if err != nil || !got {
		t.Errorf("the lock of two numbers was taken: %v", err)
	}
	err = pool.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1::bigint)`, key).Scan(&got)
	if err != nil || got {
		t.Errorf("the lease does not hold the lock of its key: %v", err)
	}
}
