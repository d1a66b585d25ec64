package lease

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// renewAll sends one pipeline. The server may not know the script, which a pipeline cannot teach it: those
// renewals are sent again one by one.
func (s *scripts) renewAll(batch []renewal) {
	least := MaxTTL
	for _, b := range batch {
		least = min(least, b.lease.Remaining())
	}
	// go-redis tries again by itself, and must not do so past the first deadline.
	ctx, cancel := context.WithTimeout(context.Background(), least)
	defer cancel()
	pipe := s.patient(least).Pipeline()
	answers := make([]*redis.Cmd, len(batch))
	for i, b := range batch {
		answers[i] = pipe.EvalSha(ctx, s.renew.Hash(), []string{b.lease.keys.lease}, b.lease.secret, milliseconds(b.ttl))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range batch {
		b := &batch[i]
		b.answer, b.err = answers[i].Text()
		if redis.HasErrorPrefix(b.err, "NOSCRIPT") {
			b.answer, b.err = s.runRenew(ctx, b.lease.ident, b.ttl)
		} else {
			b.err = interpret(ctx, "renew", b.lease.resource, b.err)
		}
	}
}

// patient returns the client with no more patience than the leases have time: a connection that hangs
// has to be given up while another can still save them. go-redis tries up to four times.
func (s *scripts) patient(least time.Duration) redis.UniversalClient {
	client, ok := s.client.(*redis.Client)
	if !ok {
		return s.client
	}
	try, own := max(least/5, 20*time.Millisecond), client.Options().ReadTimeout
	if own <= 0 || try < own {
		return client.WithTimeout(try)
	}
	return client
}
