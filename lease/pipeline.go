package lease

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// groups splits leases by the cluster node they live on.
func (s *scripts) groups(leases []*Lease) [][]*Lease {
	return byServer(s.client, leases, func(l *Lease) string { return l.keys.lease })
}

// byServer splits all by the cluster node that has their keys, as far as the cluster client knows.
func byServer[T any](client redis.UniversalClient, all []T, key func(T) string) [][]T {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return [][]T{all}
	}
	var groups [][]T
	place := make(map[*redis.Client]int)
	for _, one := range all {
		server, _ := cluster.MasterForKey(context.Background(), key(one)) // nil if that is unknown
		i, known := place[server]
		if !known {
			i = len(groups)
			place[server] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], one)
	}
	return groups
}

// renewAll sends one pipeline with the leases of one group. If the server does not know the script, which a pipeline
// cannot teach it, or a slot has moved, those renewals are sent again one by one.
func (s *scripts) renewAll(batch []renewal) {
	least := MaxTTL
	for _, b := range batch {
		least = min(least, b.lease.Remaining())
	}
	try, whole := s.patience(least)
	// go-redis retries by itself and must not do so past the first deadline.
	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	failed := false
	for i, a := range s.renewTogether(ctx, batch, s.trips.long(least), try) {
		b := &batch[i]
		b.answer, b.err = a.answer, a.err
		if redis.HasErrorPrefix(b.err, "NOSCRIPT") || redis.HasErrorPrefix(b.err, "MOVED") ||
			redis.HasErrorPrefix(b.err, "ASK") {
			b.answer, b.err = s.renewAlone(ctx, *b)
		} else {
			failed = failed || b.err != nil
			b.err = interpret(ctx, "renew", b.lease.resource, b.err)
		}
	}
	if failed {
		s.refresh()
	}
}

func (s *scripts) renewAlone(ctx context.Context, b renewal) (string, error) {
	if b.confirms {
		return s.runConfirm(ctx, b.lease.ident, b.lease.label, b.ttl, "")
	}
	return s.runRenew(ctx, b.lease.ident, b.ttl)
}

// patience is how long one try of a renewal may take, and how long all tries together may take, if that much time
// remains. A connection that hangs has to be given up while another, or a server that has taken over, can still save
// the lease. But a try is never given up before the server can have answered, by the round trips measured so far.
func (s *scripts) patience(remains time.Duration) (try, whole time.Duration) {
	const least = 20 * time.Millisecond
	trip := s.trips.longest()
	try = min(max(remains/5, 2*trip), max(remains, least))
	return max(try, least), max(remains/3, try, least)
}

// renewTogether sends one pipeline and returns one answer for each renewal of the batch. With teach, the first renewal
// carries the script itself. That costs bytes, and saves a round trip if the server has lost the script.
func (s *scripts) renewTogether(ctx context.Context, batch []renewal, teach bool, try time.Duration) []renewal {
	server, cluster := s.patient(try)
	pipe := server.Pipeline()
	sent := make([]*redis.Cmd, len(batch))
	for i, b := range batch {
		l, send := b.lease, s.renew
		keys, args := []string{l.keys.lease}, []any{l.secret, milliseconds(b.ttl)}
		if b.confirms {
			send, keys, args = s.confirm, append(keys, l.keys.counter), append(args, l.label, s.idle, "")
		}
		if teach && i == 0 {
			sent[i] = send.Eval(ctx, pipe, keys, args...)
		} else {
			sent[i] = send.EvalSha(ctx, pipe, keys, args...)
		}
	}
	answered := func() ([]renewal, error) {
		began := time.Now()
		_, err := pipe.Exec(ctx) // each command has its own error
		s.trips.ended(began, err)
		answers := make([]renewal, len(batch))
		for i, cmd := range sent {
			answers[i].answer, answers[i].err = cmd.Text()
		}
		return answers, nil
	}
	if !cluster {
		answers, _ := answered()
		return answers
	}
	limit, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	answers, pending, _ := async(answered).await(limit, 0)
	if pending != nil {
		answers = make([]renewal, len(batch))
		for i := range answers {
			answers[i].err = limit.Err()
		}
	}
	return answers
}

// refresh makes a cluster client look up again which server has which slots. By itself it keeps dialling a dead server
// for up to a minute.
func (s *scripts) refresh() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background()) // in the background
	}
}

// pipeliner makes pipelines.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// patient returns a pipeliner that gives one try at most the given time and calls the hooks of the caller's client.
// go-redis tries up to four times. A cluster client has no such setting, and a client of one of its nodes would not
// call the cluster client's hooks; for a cluster, the caller limits its own wait instead.
func (s *scripts) patient(try time.Duration) (client pipeliner, cluster bool) {
	one, ok := s.client.(*redis.Client)
	if !ok {
		return s.client, true
	}
	if own := one.Options().ReadTimeout; own <= 0 || try < own {
		return hooked(one, one.WithTimeout(try)), false
	}
	return one, false
}

// hooked returns a pipeliner that calls the hooks of client and sends through by. The copy that WithTimeout makes calls
// none of the hooks. A Conn does call them. It takes a connection only when it sends, which this one never does.
func hooked(client, by *redis.Client) pipeliner {
	conn := client.Conn()
	conn.AddHook(detour{by})
	return conn
}

// detour is the innermost hook: commands that have passed the others go through its client.
type detour struct{ by *redis.Client }

func (d detour) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (d detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d detour) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := d.by.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // it is queued
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}
