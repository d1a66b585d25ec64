package services

import (
	"context"
	"strings"
)

// Redis is a server of one's own, to be hurt. Its methods take turns and may be
// called from several goroutines.
type Redis struct {
	host *hostProcess
	url  string
	// Description is the server for people, as in [Services].
	Description string
}

// StartRedis starts a Redis with further arguments for redis-server, such as
// "--appendonly", "yes". Without any it keeps nothing on disk. The order is that of
// [Start] without servers named by address, which are not ours to hurt. Ctx bounds
// the start only. The caller must Close the result.
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

// URL returns its redis:// address, the same for its whole life.
func (r *Redis) URL() string { return r.url }

// Addr returns its address as host:port.
func (r *Redis) Addr() string {
	addr := strings.TrimPrefix(r.url, "redis://")
	addr, _, _ = strings.Cut(addr, "/")
	return addr
}

// Kill ends the server by SIGKILL: nothing is saved, no client is told goodbye.
func (r *Redis) Kill(ctx context.Context) error { return r.order(ctx, request{Op: opKill}) }

// Start starts it again after Kill, on the same port and with what is left on disk
// of its data, and returns once it answers.
func (r *Redis) Start(ctx context.Context) error { return r.order(ctx, request{Op: opStart}) }

// StartEmpty is Start without the data on disk.
func (r *Redis) StartEmpty(ctx context.Context) error {
	return r.order(ctx, request{Op: opStart, Empty: true})
}

// Pause stops the server in mid-run: connections stay, nothing is answered.
func (r *Redis) Pause(ctx context.Context) error { return r.order(ctx, request{Op: opPause}) }

// Resume ends Pause.
func (r *Redis) Resume(ctx context.Context) error { return r.order(ctx, request{Op: opResume}) }

// Close stops the server and removes its data. A second call does nothing.
func (r *Redis) Close() error { return r.host.close() }

func (r *Redis) order(ctx context.Context, o request) error {
	_, err := r.host.call(ctx, o)
	return err
}
