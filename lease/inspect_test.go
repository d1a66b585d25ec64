package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

func inspector(t *testing.T, prefix string, clients ...redis.UniversalClient) *lease.Inspector {
	t.Helper()
	i, err := lease.NewInspector(clients, &lease.Options{Prefix: prefix, CounterIdle: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func look(t *testing.T, i *lease.Inspector, resource string) lease.Sight {
	t.Helper()
	seen, err := i.Look(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	return seen[0]
}

func TestInspectorTellsEachStandingAndNoSecret(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	i := inspector(t, b.prefix, b.rdb)
	l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{Label: "host/1"})
	seen := look(t, i, "r")
	if seen.Standing != lease.Held || seen.Label != "host/1" || seen.Token != l.Token() || seen.Counter != l.Token() ||
		seen.Left < 30*time.Second || seen.Left > time.Minute || seen.Waiting != 0 {
		t.Errorf("%+v", seen)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s"} {
		if text := fmt.Sprintf(verb, seen); strings.Contains(text, l.Nonce().Hex()) {
			t.Errorf("%s prints the nonce", verb)
		}
	}
	key := func(r string) string { return b.prefix + ":{" + r + "}:lease" }
	for r, value := range map[string]string{
		"reserved": "~" + strings.Repeat("a", 32), "called": "?" + strings.Repeat("a", 32) + " 200 12345",
		"foreign": "hello", "huge": strings.Repeat("a", 32) + " 9999999999999999999 x",
	} {
		b.rdb.Set(t.Context(), key(r), value, time.Minute)
	}
	b.rdb.Set(t.Context(), key("eternal"), strings.Repeat("a", 32)+" 1 x", 0)
	b.rdb.LPush(t.Context(), key("list"), "x")
	for r, want := range map[string]lease.Standing{
		"free": lease.Free, "reserved": lease.Reserved, "called": lease.Reserved,
		"foreign": lease.Foreign, "huge": lease.Foreign,
		"eternal": lease.Foreign, "list": lease.Foreign,
	} {
		if got := look(t, i, r); got.Standing != want || got.Token != 0 {
			t.Errorf("%s: %+v, want %s", r, got, want)
		}
	}
	if _, err := i.Look(t.Context(), ""); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a resource without a name: %v", err)
	}
}

func TestInspectorScansByName(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	i := inspector(t, b.prefix, b.rdb)
	names := []string{"a b", "a{b}", "c%d", "é", "plain:1", "\x01"}
	for _, name := range names {
		b.acquire(t, name, time.Minute, nil)
	}
	slices.Sort(names)
	got, more, err := i.Scan(t.Context(), 100)
	if err != nil || more || !slices.Equal(got, names) {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	got, more, err = i.Scan(t.Context(), 3)
	if err != nil || !more || len(got) != 3 {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	got, _, err = inspector(t, b.prefix[:len(b.prefix)-1]+"*", b.rdb).Scan(t.Context(), 100)
	if err != nil || len(got) > 0 {
		t.Errorf("a prefix with a star found %q, %v", got, err)
	}
}

func TestInspectorOverACluster(t *testing.T) {
	t.Parallel()
	rdb := testenv.ClusterClient(t, testenv.Cluster(t, nil), nil)
	m := manager(t, rdb, lease.Options{Prefix: "p"})
	i := inspector(t, "p", rdb)
	var names []string
	var floors []lease.Floor
	for n := range 20 {
		name := fmt.Sprintf("r%02d", n)
		l, err := m.Acquire(t.Context(), name, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Release(context.Background()) }()
		names = append(names, name)
		floors = append(floors, lease.Floor{Resource: name, Token: 100})
	}
	if got, more, err := i.Scan(t.Context(), 100); err != nil || more || !slices.Equal(got, names) {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	if n, err := i.RaiseCounters(t.Context(), floors); n != 20 || err != nil {
		t.Errorf("raised %d, %v", n, err)
	}
	if ok, err := i.Evict(t.Context(), look(t, i, "r07")); !ok || err != nil {
		t.Errorf("evict: %v, %v", ok, err)
	}
	if got := look(t, i, "r07"); got.Standing != lease.Free || got.Counter != 100 {
		t.Errorf("%+v", got)
	}
}

func TestRaiseCountersNeverLowers(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	i := inspector(t, b.prefix, b.rdb)
	key := func(r string) string { return b.prefix + ":{" + r + "}:token" }
	for r, value := range map[string]string{
		"below": "9",
		"zero":  "0",
		"at":    "10",
		"above": "11",
		"bad":   "x",
		"far":   "9007199254740993",
	} {
		b.rdb.Set(t.Context(), key(r), value, time.Hour)
	}
	floors := []lease.Floor{
		{"below", 10}, {"zero", 10}, {"at", 10}, {"above", 10}, {"bad", 10}, {"absent", 10}, {"far", 9007199254740994},
	}
	for _, want := range []int{4, 0} { // safe to repeat
		if n, err := i.RaiseCounters(t.Context(), floors); n != want || err != nil {
			t.Errorf("raised %d, %v, want %d", n, err, want)
		}
	}
	for r, want := range map[string]string{
		"below": "10", "zero": "10", "at": "10", "above": "11", "bad": "x", "absent": "10", "far": "9007199254740994",
	} {
		if got := b.rdb.Get(t.Context(), key(r)).Val(); got != want {
			t.Errorf("%s: %s, want %s", r, got, want)
		}
		if left := b.pttl(t, key(r)); left <= 0 || r != "absent" && left > time.Hour || r == "absent" && left < 47*time.Hour {
			t.Errorf("%s: %v left", r, left)
		}
	}
	if l := b.acquire(t, "below", time.Minute, nil); l.Token() != 11 {
		t.Errorf("the next token is %d", l.Token())
	}
}

// The first waiter gets the lease, and the holder learns that it has none.
func TestEvictHandsOn(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	i := inspector(t, b.prefix, b.rdb)
	first := b.acquire(t, "r", 30*time.Second, &lease.AcquireOptions{RenewEvery: 10 * time.Millisecond})
	next := make(chan *lease.Lease, 1)
	go func() {
		l, _ := b.m.Acquire(t.Context(), "r", time.Minute, nil)
		next <- l
	}()
	eventually(t, "the waiter", func() bool { return look(t, i, "r").Waiting == 1 })
	if ok, err := i.Evict(t.Context(), look(t, i, "r")); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if l := <-next; l == nil || l.Token() != first.Token()+1 {
		t.Errorf("the waiter got %+v", l)
	} else {
		defer func() { _ = l.Release(context.Background()) }()
	}
	within(t, "the loss", 10*time.Second, first.Done())
	wantErr(t, first.Err(), lease.ErrLost)
}

// A sight is about one grant: what came after it is left alone.
func TestEvictLeavesWhatCameAfter(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	i := inspector(t, b.prefix, b.rdb)
	l := b.acquire(t, "r", time.Minute, nil)
	seen := look(t, i, "r")
	if _, err := l.Reissue(t.Context(), token.Token(50)); err != nil {
		t.Fatal(err)
	}
	if ok, err := i.Evict(t.Context(), seen); ok || err != nil {
		t.Errorf("another token: %v, %v", ok, err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	b.acquire(t, "r", time.Minute, nil)
	if ok, err := i.Evict(t.Context(), seen); ok || err != nil {
		t.Errorf("another holder: %v, %v", ok, err)
	}
	if got := look(t, i, "r"); got.Standing != lease.Held || got.Token != 52 {
		t.Errorf("%+v", got)
	}
	if ok, err := i.Evict(t.Context(), lease.Sight{Resource: "r"}); ok || err != nil {
		t.Errorf("nothing seen: %v, %v", ok, err)
	}
}

func TestInspectorOverAQuorum(t *testing.T) {
	t.Parallel()
	servers := []redis.UniversalClient{
		testenv.RedisOn(t, testenv.OwnRedis(t).URL()), testenv.RedisOn(t, testenv.OwnRedis(t).URL()),
		testenv.RedisOn(t, testenv.OwnRedis(t).URL()),
	}
	q, err := lease.NewQuorum(servers, &lease.QuorumOptions{Options: lease.Options{Prefix: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	i := inspector(t, "p", servers...)
	l, err := q.Acquire(t.Context(), "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release(context.Background()) }()
	key := "p:{r}:lease"
	eventually(t, "a share on each server", func() bool { // a majority is enough to hold it
		return !slices.ContainsFunc(servers,
			func(s redis.UniversalClient) bool { return s.Exists(t.Context(), key).Val() == 0 })
	})
	servers[0].Del(t.Context(), key)
	if got := look(t, i, "r"); got.Standing != lease.Held || got.Token != l.Token() || got.Left < 30*time.Second {
		t.Errorf("%+v", got)
	}
	value := servers[1].Get(t.Context(), key).Val()
	servers[1].Del(t.Context(), key)
	if got := look(t, i, "r"); got.Standing != lease.Minority {
		t.Errorf("%+v", got)
	}
	servers[1].Set(t.Context(), key, value, time.Minute)
	if ok, err := i.Evict(t.Context(), look(t, i, "r")); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if got := look(t, i, "r"); got.Standing != lease.Free {
		t.Errorf("%+v", got)
	}
}
