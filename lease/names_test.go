package lease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
)

func TestEveryLegalNameGetsItsOwnLease(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	names := []string{
		"r", "invoice:2026-11", "{", "}", "{}", "{a}", "}{", "a{b}c", "%", "%7B", " ", "a b", "\n", "\x00", "*", "?[",
		"\u00e9", "e\u0301", "😀", strings.Repeat("x", lease.MaxResourceBytes), strings.Repeat("é", lease.MaxResourceBytes/2),
	}
	for _, name := range names {
		if l := b.acquire(t, name, time.Minute, nil); l.Token() != 1 {
			t.Errorf("%q shares its keys with another name", name)
		}
	}
}

func TestOtherNamesAreRefusedBeforeAnyTraffic(t *testing.T) {
	t.Parallel()
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = nowhere.Close() }()
	m := manager(t, nowhere, lease.Options{})
	for _, name := range []string{"", "\xff", "a\xc3", strings.Repeat("x", lease.MaxResourceBytes+1)} {
		_, err := m.TryAcquire(t.Context(), name, time.Minute, nil)
		wantErr(t, err, lease.ErrInvalid)
	}
	for _, prefix := range []string{"a{b", "a}b", "{}", "\xff", strings.Repeat("x", lease.MaxPrefixBytes+1)} {
		_, err := lease.NewManager(nowhere, &lease.Options{Prefix: prefix})
		wantErr(t, err, lease.ErrInvalid)
	}
	for _, label := range []string{"\xff", strings.Repeat("x", lease.MaxLabelBytes+1)} {
		_, err := m.TryAcquire(t.Context(), "r", time.Minute, &lease.AcquireOptions{Label: label})
		wantErr(t, err, lease.ErrInvalid)
	}
	_, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if wantErr(t, err, lease.ErrUnavailable); errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a legal name was refused: %v", err)
	}
}

func TestCase24_DifferentPairsOfPrefixAndNameGiveDifferentKeys(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{
		{"a:b", "c"},
		{"a", "b:c"},
		{"a", "c"},
		{"a", "c}:lease"},
		{"a", "c}:{c"},
		{"a:", "c"},
		{"a", ":c"},
		{"a", "%7D"},
		{"a", "}"},
		{"", "a"},
		{"a", "a"},
	}
	seen := make(map[string][2]string)
	for _, pair := range pairs {
		leaseKey, counterKey := lease.KeysOf(pair[0], pair[1])
		for _, key := range []string{leaseKey, counterKey} {
			if other, ok := seen[key]; ok {
				t.Errorf("%q and %q share the key %q", pair, other, key)
			}
			seen[key] = pair
		}
	}
}

// The values are fixed. If a release changed them, old and new versions would run side by side without excluding each
// other.
func TestCase24_KeysAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"invoice:2026-11": "fencepost:{invoice:2026-11}:",
		"a{b}%":           "fencepost:{a%7Bb%7D%25}:",
		"é \n":            "fencepost:{%C3%A9%20%0A}:",
	} {
		leaseKey, counterKey := lease.KeysOf("fencepost", name)
		if leaseKey != want+"lease" || counterKey != want+"token" {
			t.Errorf("%q has the keys %q and %q", name, leaseKey, counterKey)
		}
	}
}

func FuzzKeysOfOneNameShareAHashTagOfTheirOwn(f *testing.F) {
	f.Add("a", "b")
	f.Add("{", "}")
	f.Add("%7B", "{")
	f.Fuzz(func(t *testing.T, a, b string) {
		leaseA, counterA := lease.KeysOf("p", a)
		leaseB, _ := lease.KeysOf("p", b)
		if a != "" && (tag(leaseA) == "" || tag(leaseA) != tag(counterA)) {
			t.Errorf("%q: %q and %q do not share a tag", a, leaseA, counterA)
		}
		if (a == b) != (leaseA == leaseB) {
			t.Errorf("%q and %q: %q and %q", a, b, leaseA, leaseB)
		}
	})
}

// tag is the part of a key that decides its slot in a cluster.
func tag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	inner, _, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return ""
	}
	return inner
}
