package library

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/measure"
	leases "github.com/fencepost-pg/fencepost/lease"
)

// leaseTTL is not in whole seconds, for go-redis to send PX.
const leaseTTL = 30_500 * time.Millisecond

// lease measures acquire and release, each worker on a resource of its own.
func lease(ctx context.Context, s Servers) (measure.Comparison, error) {
	manager, err := leases.NewManager(s.Redis, &leases.Options{Prefix: "fencepost:" + s.Name})
	if err != nil {
		return measure.Comparison{}, err
	}
	replay, err := replayed(ctx, s)
	if err != nil {
		return measure.Comparison{}, err
	}
	return measure.Comparison{
		Title: fmt.Sprintf("acquire and release a lease, %d goroutines, nobody else wants it", Workers),
		Candidates: []measure.Candidate{
			setNX(s),
			managed(manager, "worker"),
			replay,
		},
	}, nil
}

// managed acquires and releases by a manager.
func managed(manager *leases.Manager, prefix string) measure.Candidate {
	return measure.Candidate{Name: "lease.Manager", Target: 1, Worker: func(worker int) func(context.Context) error {
		resource := fmt.Sprintf("%s-%d", prefix, worker)
		return func(ctx context.Context) error {
			l, err := manager.TryAcquire(ctx, resource, leaseTTL, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}
	}}
}

// compareAndDelete is the release that everybody writes by hand.
const compareAndDelete = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`

// setNX is the common hand-written lock: SET key nonce NX PX ttl, and a script that removes the key if it still holds
// that nonce. It renews nothing, watches no deadline and has no token.
func setNX(s Servers) measure.Candidate {
	release := redis.NewScript(compareAndDelete)
	return measure.Candidate{Name: "SET NX PX + compare-and-delete", Worker: func(worker int) func(context.Context) error {
		key := fmt.Sprintf("byhand:%s:{worker-%d}:lease", s.Name, worker)
		return func(ctx context.Context) error {
			var random [16]byte
			_, _ = rand.Read(random[:]) // never fails
			nonce := hex.EncodeToString(random[:])
			ok, err := s.Redis.SetNX(ctx, key, nonce, leaseTTL).Result()
			if err != nil {
				return err
			}
			if !ok {
				return errors.New("the key was there already")
			}
			removed, err := release.Run(ctx, s.Redis, []string{key}, nonce).Int()
			if err == nil && removed != 1 {
				err = errors.New("the key was gone before its release")
			}
			return err
		}
	}}
}
