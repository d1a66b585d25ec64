package servers

import (
	"reflect"
	"strings"
	"testing"
)

func TestAddressesOfRedis(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		kind   kind
		hosts  string
		tls    bool
		master string
		db     int
		user   string
	}{
		"redis://h":                         {either, "h:6379", false, "", 0, ""},
		"redis://u:hunter2@h:1/2":           {either, "h:1", false, "", 2, "u"},
		"rediss://h:1?skip_verify=true":     {either, "h:1", true, "", 0, ""},
		"redis://[::1]:1":                   {either, "[::1]:1", false, "", 0, ""},
		"redis://[::1]":                     {either, "[::1]:6379", false, "", 0, ""},
		"redis+sentinel://a,b:1/3?master=m": {sentinel, "a:26379 b:1", false, "m", 3, ""},
		"rediss+sentinel://u:p@a/?master=m&sentinel_user=s&sentinel_password=hunter2": {
			sentinel,
			"a:26379", true, "m", 0, "u",
		},
		"redis+cluster://u:p%40@a:1,b:2":       {cluster, "a:1 b:2", false, "", 0, "u"},
		"rediss+cluster://a:1?read_timeout=3s": {cluster, "a:1", true, "", 0, ""},
		"unix://u@/run/redis.sock?db=1":        {either, "", false, "", 1, "u"},
	} {
		a, err := parseRedis(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if a.kind != want.kind || strings.Join(a.hosts, " ") != want.hosts || (a.options.TLSConfig != nil) != want.tls ||
			a.master != want.master || a.options.DB != want.db || a.options.Username != want.user {
			t.Errorf("%s: %+v, want %+v", text, a, want)
		}
		if f := a.failover(); a.kind == sentinel && (f.Username != want.user || (f.TLSConfig != nil) != want.tls ||
			f.SentinelPassword != a.password || !reflect.DeepEqual(f.SentinelAddrs, a.hosts)) {
			t.Errorf("%s: %+v", text, f)
		}
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "hunter2", "http://hunter2", "redis+ring://hunter2", "redis://a:1,b:2?password=hunter2", "redis://hunter2:x/1/2",
		"redis+sentinel://hunter2@a", "redis://hunter2@a?master=m", "redis+cluster://a:1/hunter2",
		"redis+cluster://a/1?x=hunter2",
		"redis://a?ca=x", "redis://u:hunter2%zz@h", "redis://h?hunter2=1", "rediss://h?ca=/nowhere/at/all",
		"rediss://h?cert=redisurl.go",
		"unix+cluster://hunter2", "rediss://h?ca=redisurl.go",
	} {
		if _, err := parseRedis(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if CheckRedis([]string{"redis://a", "redis://b"}) == nil ||
		CheckRedis([]string{"redis://a", "redis://b", "redis://c"}) != nil {
		t.Error("two addresses are a quorum, or three are none")
	}
}
