package lease

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// groups parts leases by the server of a cluster that they live on.
func (s *scripts) groups(leases []*Lease) [][]*Lease {
	if _, cluster := s.client.(*redis.ClusterClient); !cluster {
		return [][]*Lease{leases}
	}
	var groups [][]*Lease
	place := make(map[redis.UniversalClient]int)
	for _, l := range leases {
		server := s.server(context.Background(), l)
		i, known := place[server]
		if !known {
			i = len(groups)
			place[server] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

// server is the client of the server that a lease lives on, as far as the cluster's client knows.
func (s *scripts) server(ctx context.Context, l *Lease) redis.UniversalClient {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		if server, err := cluster.MasterForKey(ctx, l.keys.lease); err == nil {
			return server
		}
	}
	return s.client
}

// renewAll sends one pipeline, of leases of one group. The server may not know the script, which a pipeline
// cannot teach it, or a slot may have moved: those renewals are sent again one by one.
func (s *scripts) renewAll(batch []renewal) {
	least := MaxTTL
	for _, b := range batch {
		least = min(least, b.lease.Remaining())
	}
	// go-redis tries again by itself, and must not do so past the first deadline, nor for so long that no
	// time remains to look for a server that has taken over.
	ctx, cancel := context.WithTimeout(context.Background(), max(least/3, 20*time.Millisecond))
	defer cancel()
	pipe := s.patient(s.server(ctx, batch[0].lease), least).Pipeline()
	answers, failed := make([]*redis.Cmd, len(batch)), false
	for i, b := range batch {
		answers[i] = pipe.EvalSha(ctx, s.renew.Hash(), []string{b.lease.keys.lease}, b.lease.secret, milliseconds(b.ttl))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range batch {
		b := &batch[i]
		b.answer, b.err = answers[i].Text()
		if redis.HasErrorPrefix(b.err, "NOSCRIPT") || redis.HasErrorPrefix(b.err, "MOVED") || redis.HasErrorPrefix(b.err, "ASK") {
			b.answer, b.err = s.runRenew(ctx, b.lease.ident, b.ttl)
		} else {
			failed = failed || b.err != nil
			b.err = interpret(ctx, "renew", b.lease.resource, b.err)
		}
	}
	if failed {
		s.refresh()
	}
}

// refresh has the client of a cluster look again which server has which slots: by itself it goes on dialling one
// that is no more for up to a minute.
func (s *scripts) refresh() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background()) // in the background
	}
}

// patient returns a client with no more patience than the leases have time: a connection that hangs
// has to be given up while another can still save them. go-redis tries up to four times.
func (s *scripts) patient(server redis.UniversalClient, least time.Duration) redis.UniversalClient {
	client, ok := server.(*redis.Client)
	if !ok {
		return server
	}
	try, own := max(least/5, 20*time.Millisecond), client.Options().ReadTimeout
	if own <= 0 || try < own {
		return client.WithTimeout(try)
	}
	return client
}
