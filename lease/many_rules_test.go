package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// difficult prepares resources of every kind that one call for several must leave out.
func difficult(t *testing.T, b bundle) (names []string) {
	t.Helper()
	other := manager(t, b.rdb, lease.Options{Prefix: b.prefix, Label: "another"})
	tryAll(t, other, []string{"held"}, time.Minute)
	b.deaf(t, float64(time.Now().UnixMilli())) // in the queue of r
	leaseOf := func(name string) string { key, _ := lease.KeysOf(b.prefix, name); return key }
	counterOf := func(name string) string { _, key := lease.KeysOf(b.prefix, name); return key }
	b.do(t, "SET", counterOf("exact"), "9007199254740993")
	b.do(t, "SET", counterOf("text"), "x")
	b.do(t, "SET", counterOf("zeros"), "007")
	b.do(t, "SET", counterOf("negative"), "-3")
	b.do(t, "SET", counterOf("zero"), "0")
	b.do(t, "RPUSH", counterOf("list"), "1")
	b.do(t, "HSET", leaseOf("hash"), "a", "1")
	b.do(t, "SET", counterOf("counted"), "41")
	return []string{"new", "held", "r", "exact", "text", "zeros", "negative", "zero", "list", "hash", "counted"}
}

// outcomes says what became of each resource, in the words of one line.
func outcomes(names []string, leases []*lease.Lease, errs []error) []string {
	lines := make([]string, len(names))
	for i, name := range names {
		var held *lease.HeldError
		switch {
		case errs[i] == nil:
			lines[i] = fmt.Sprint(name, " ", leases[i].Token(), " ", leases[i].CounterWasAbsent())
		case errors.As(errs[i], &held):
			lines[i] = name + " held by " + held.Label
		default:
			lines[i] = errs[i].Error()
		}
	}
	return lines
}

// grantedDifferently returns where one call for all resources and one call for each end differently.
func grantedDifferently(t *testing.T, old, changed string) (differences []string) {
	t.Helper()
	var lines [2][]string
	for way := range lines {
		b := bundle{rdb: testenv.RedisOn(t, testenv.OwnRedis(t).URL()), prefix: "same"}
		b.m = manager(t, b.rdb, lease.Options{Prefix: b.prefix, CounterIdle: 48 * time.Hour})
		if old != "" && !lease.EditMany(b.m, old, changed) {
			t.Fatalf("no script has %q", old)
		}
		names := difficult(t, b)
		leases, errs := make([]*lease.Lease, len(names)), make([]error, len(names))
		if way == 0 {
			leases, errs = b.m.TryAcquireAll(t.Context(), names, time.Minute, nil)
		} else {
			for i, name := range names {
				leases[i], errs[i] = b.m.TryAcquire(t.Context(), name, time.Minute, nil)
			}
		}
		lines[way] = outcomes(names, leases, errs)
		for i, name := range names {
			key, counter := lease.KeysOf(b.prefix, name)
			about := fmt.Sprint(": counter ", b.rdb.Type(t.Context(), counter).Val(), " ", b.rdb.Get(t.Context(), counter).Val())
			if leases[i] != nil {
				about += fmt.Sprint(", expires ", b.pttl(t, counter) > 47*time.Hour, " with the lease ",
					b.pttl(t, key) > 50*time.Second)
			}
			lines[way][i] += about
		}
		lease.ReleaseAll(t.Context(), leases)
	}
	for i := range lines[0] {
		if lines[0][i] != lines[1][i] {
			differences = append(differences, fmt.Sprintf("together %q, alone %q", lines[0][i], lines[1][i]))
		}
	}
	return differences
}

// One call for several resources has the outcomes of one call for each.
func TestManyInOneCallFollowTheRulesOfOne(t *testing.T) {
	t.Parallel()
	for _, difference := range grantedDifferently(t, "", "") {
		t.Error(difference)
	}
}

// The controls: without one of its conditions, that call takes a lease from its holder, or goes ahead of a waiter,
// overwrites a foreign key, counts wrongly, or leaves a counter for ever.
func TestManyInOneCallWithoutOneOfItsConditions(t *testing.T) {
	t.Parallel()
	for condition, change := range map[string][2]string{
		"it is free, and nobody waits": {"if free or redis.call('EXISTS', lease, KEYS[2 * n + i]) == 0 then", "if true then"},
		"nobody waits":                 {"redis.call('EXISTS', lease, KEYS[2 * n + i])", "redis.call('EXISTS', lease)"},
		"no foreign counter":           {"if redis.call('EXISTS', counter) == 0 then token = '1' end", "token = '1'"},
		"exact numbers":                {"#last[i] <= 15 and", ""},
		"a good counter":               {"string.find(last[i], '^[1-9]%d*$')", "tonumber(last[i])"},
		"the idle time": {
			"redis.call('SET', counter, token, 'PX', idle)",
			"redis.call('SET', counter, token)",
		},
	} {
		t.Run(condition, func(t *testing.T) {
			t.Parallel()
			if len(grantedDifferently(t, change[0], change[1])) == 0 {
				t.Error("it makes no difference")
			}
		})
	}
}

// releasedWrongly releases three leases in one call: one is ours, another holder has taken the second, and somebody
// waits for the third. It returns what is wrong with the keys that are left.
func releasedWrongly(t *testing.T, old, changed string) (wrong []string) {
	t.Helper()
	b := setup(t, lease.Options{})
	if old != "" && !lease.EditMany(b.m, old, changed) {
		t.Fatalf("no script has %q", old)
	}
	leases := tryAll(t, b.m, []string{"ours", "taken", "r"}, time.Minute)
	key := func(name string) string { key, _ := lease.KeysOf(b.prefix, name); return key }
	b.do(t, "SET", key("taken"), token.NewNonce().Hex()+" 9 x", "PX", 60_000)
	b.deaf(t, float64(time.Now().UnixMilli()))
	errs := lease.ReleaseAll(t.Context(), leases)
	if errs[0] != nil || errs[2] != nil || b.exists(t, key("ours")) {
		wrong = append(wrong, fmt.Sprint("released: ", errs))
	}
	if !errors.Is(errs[1], lease.ErrLost) || !b.exists(t, key("taken")) {
		wrong = append(wrong, fmt.Sprint("the other holder's lease was removed: ", errs[1]))
	}
	if reserved := b.rdb.Get(t.Context(), key("r")).Val(); reserved == "" || reserved[0] != '~' {
		wrong = append(wrong, fmt.Sprintf("the waiter's lease is %q", reserved))
	}
	return wrong
}

func TestManyReleasesInOneCallFollowTheRulesOfOne(t *testing.T) {
	t.Parallel()
	for _, wrong := range releasedWrongly(t, "", "") {
		t.Error(wrong)
	}
	// The controls.
	for _, change := range [][2]string{
		{"string.sub(leases[i], 1, 33) == string.sub(nonces, 32 * i - 31, 32 * i) .. ' '", "true"},
		{"(alone or redis.call('EXISTS', KEYS[n + i]) == 0)", "true"},
	} {
		if len(releasedWrongly(t, change[0], change[1])) == 0 {
			t.Errorf("without %s nothing is wrong", change[0])
		}
	}
}

// regrantedAfterALostReply makes go-redis repeat a call for several resources whose reply was lost. It returns the
// counter of one of them.
func regrantedAfterALostReply(t *testing.T, old, changed string) (counter string, errs []error) {
	t.Helper()
	p := setupProxied(t, lease.Options{}, nil)
	if old != "" && !lease.EditMany(p.m, old, changed) {
		t.Fatalf("no script has %q", old)
	}
	lease.ReleaseAll(t.Context(), tryAll(t, p.m, []string{"loads", "the scripts"}, time.Minute))
	dropped := p.proxy.DropNextReply(faults.Containing(p.prefix))
	leases, errs := p.m.TryAcquireAll(t.Context(), []string{"a", "b", "c"}, time.Minute, nil)
	within(t, "the lost reply", 5*time.Second, dropped)
	_, key := lease.KeysOf(p.prefix, "b")
	counter = p.rdb.Get(t.Context(), key).Val()
	return counter, append(errs, lease.ReleaseAll(context.Background(), leases)...)
}

func TestALostReplyToACallForManyIsNotARival(t *testing.T) {
	t.Parallel()
	if counter, errs := regrantedAfterALostReply(t, "", ""); counter != "1" || errors.Join(errs...) != nil {
		t.Errorf("counter %s, %v", counter, errs)
	}
	// The control: granted again.
	if counter, _ := regrantedAfterALostReply(t, "if free or redis.call('EXISTS', lease, KEYS[2 * n + i]) == 0 then",
		"if true then"); counter != "2" {
		t.Errorf("without looking at the lease the counter is %s", counter)
	}
}

// A call that fails in the middle has granted some. They are found by their nonces, and the others are asked for.
func TestACallForManyThatFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	old := "  tokens[i] = token\n"
	if !lease.EditMany(b.m, old, old+"  if i == 3 then return redis.error_reply('ERR in the middle') end\n") {
		t.Fatal("no script has the line")
	}
	for i, l := range tryAll(t, b.m, namesTo(200), time.Minute) {
		if l.Token() != 1 {
			t.Errorf("lease %d has token %d", i, l.Token())
		}
	}
}

// A caller that leaves while go-redis repeats its call leaves nothing behind. The second try has left out what the
// first was granted, and nobody asks for these leases alone any more.
func TestACallForManyThatIsRepeatedAsItsCallerLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	lease.ReleaseAll(t.Context(), tryAll(t, b.m, []string{"loads", "the scripts"}, time.Minute))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	spyOn(t, b.rdb, "acquire_all").see = func(_ redis.Cmder, next func() error) error {
		err := errors.Join(next(), next())
		leave()
		return err
	}
	leases, errs := b.m.TryAcquireAll(ctx, namesTo(3), time.Minute, nil)
	for i, name := range namesTo(3) {
		wantErr(t, errs[i], lease.ErrUnavailable, context.Canceled)
		key, _ := lease.KeysOf(b.prefix, name)
		eventually(t, "the removal of "+name, func() bool { return leases[i] == nil && !b.exists(t, key) })
	}
}

// A user that lacks a command of the call for several is asked for each by itself.
func TestManyLeasesWithoutTheRightToMget(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client := connectAs(t, server.Addr(), append(documentedUser(t, server), "-mget"))
	m := manager(t, client, lease.Options{Prefix: "fencepost:billing"})
	leases := tryAll(t, m, namesTo(3), time.Minute)
	if err := errors.Join(lease.ReleaseAll(t.Context(), leases)...); err != nil {
		t.Error(err)
	}
	full := connectAs(t, server.Addr(), documentedUser(t, server))
	acquired, released := spyOn(t, full, "acquire"), spyOn(t, full, "release")
	leases = tryAll(t, manager(t, full, lease.Options{Prefix: "fencepost:billing"}), namesTo(3), time.Minute)
	err := errors.Join(lease.ReleaseAll(t.Context(), leases)...)
	if alone := acquired.calls.Load() + released.calls.Load(); err != nil || alone != 0 {
		t.Errorf("under the documented rights %d calls were made for one lease alone, %v", alone, err)
	}
}
