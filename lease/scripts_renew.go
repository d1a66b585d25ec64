package lease

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

func (s *scripts) runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error) {
	reply, err := s.reissue.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter},
		id.secret, fence.String(), s.idle).
		Slice()
	if err != nil {
		return "", 0, s.failed(ctx, "reissue", id.resource, err)
	}
	if field(reply, 0) != replyReissued {
		return field(reply, 0), 0, nil
	}
	tok, err := token.Parse(field(reply, 1))
	if err != nil {
		return "", 0, unexpected("reissue", id.resource, reply)
	}
	return replyReissued, tok, nil
}

func (s *scripts) runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error) {
	return s.renewOne(ctx, id, ttl, "0")
}

func (s *scripts) runShorten(ctx context.Context, id ident, ttl time.Duration) (answer string, open bool, err error) {
	began := time.Now()
	answer, err = s.renewOne(ctx, id, ttl, "1")
	// After its read timeout go-redis retries by itself, and then the reply may be that of the second try.
	return answer, err != nil || time.Since(began) >= readTimeout(s.client), err
}

// readTimeout is how long one try of a client waits for a reply.
func readTimeout(client redis.UniversalClient) time.Duration {
	var own time.Duration
	switch c := client.(type) {
	case *redis.Client:
		own = c.Options().ReadTimeout
	case *redis.ClusterClient:
		own = c.Options().ReadTimeout
	}
	if own <= 0 {
		return time.Second // a client of another type, or one without a timeout
	}
	return own
}

func (s *scripts) renewOne(ctx context.Context, id ident, ttl time.Duration, shorten string) (string, error) {
	began, run := time.Now(), s.renew.Run
	if s.trips.long(ttl) {
		run = s.renew.Eval // if the server lost the script, EVALSHA would cost another round trip
	}
	reply, err := run(ctx, s.client, []string{id.keys.lease}, id.secret, milliseconds(ttl), shorten).Text()
	s.trips.ended(began, err)
	return reply, s.failed(ctx, "renew", id.resource, err)
}
