package peers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// tracked locks by rueidislock: client-side caching tells the waiters that the key is gone, and then all of them try.
// The options are those of its README for a single server of 7.0.5 or later, with more patience: after a call that took
// longer than TryNextAfter, 20 ms by default, it can wait for ever for a key that nobody holds, and a busy machine is
// sometimes that slow.
type tracked struct {
	locker rueidislock.Locker
	close  func()
}

func (s Servers) openRueidislock(_ context.Context, goroutines int) ([]Client, error) {
	opts, err := rueidis.ParseURL(s.RedisURL)
	if err != nil {
		return nil, errors.New("the Redis address cannot be parsed") // the parser's words may hold a password
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: opts, KeyPrefix: s.Prefix, KeyMajority: 1, NoLoopTracking: true, KeyValidity: TTL,
		TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	once := sync.OnceFunc(locker.Close)
	return repeat(goroutines, func() Client { return tracked{locker: locker, close: once} }), nil
}

func (t tracked) Lock(ctx context.Context, name string) (Unlock, error) {
	_, cancel, err := t.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		cancel() // returns once the key has been deleted
		return nil
	}, nil
}

func (t tracked) Close() error {
	t.close()
	return nil
}
