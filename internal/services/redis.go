package services

import (
	"context"
	"strings"
)

// Redis is a test's own server, to be killed or paused. Its methods take turns and may be called from several
// goroutines.
type Redis struct {
	host *hostProcess
	url  string
	// Description describes the server for people, as in [Services].
	Description string
}

// StartRedis starts a Redis with additional arguments for redis-server, such as "--appendonly", "yes". Without any it
// keeps nothing on disk. It tries the ways in the order of [Start], except servers named by address, which must not be
// harmed. Ctx bounds the start only. The caller must Close the result.
func StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	var r *Redis
	_, err := eachWay(ctx, ownOrder, func(w Way) error {
		h, a, err := startHost(ctx, request{Op: opRedis, Way: w, Args: args})
		if err != nil {
			return err
		}
		r = &Redis{host: h, url: a.RedisURL, Description: a.Redis}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns its redis:// address, which never changes.
func (r *Redis) URL() string { return r.url }

// Addr returns its address as host:port.
func (r *Redis) Addr() string {
	addr := strings.TrimPrefix(r.url, "redis://")
	addr, _, _ = strings.Cut(addr, "/")
	return addr
}

// Kill ends the server by SIGKILL: nothing is saved, and clients get no notice.
func (r *Redis) Kill(ctx context.Context) error { return r.order(ctx, request{Op: opKill}) }

// Start restarts it after Kill, on the same port and with the data that is left on disk, and returns once it answers.
func (r *Redis) Start(ctx context.Context) error { return r.order(ctx, request{Op: opStart}) }

// StartEmpty is Start without the data on disk.
func (r *Redis) StartEmpty(ctx context.Context) error {
	return r.order(ctx, request{Op: opStart, Empty: true})
}

// Pause stops the server (SIGSTOP): connections stay open, but nothing is answered.
func (r *Redis) Pause(ctx context.Context) error { return r.order(ctx, request{Op: opPause}) }

// Resume ends Pause.
func (r *Redis) Resume(ctx context.Context) error { return r.order(ctx, request{Op: opResume}) }

// Close stops the server and removes its data. A second call does nothing.
func (r *Redis) Close() error { return r.host.close() }

func (r *Redis) order(ctx context.Context, o request) error {
	_, err := r.host.call(ctx, o)
	return err
}
